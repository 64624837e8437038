# SPDX-License-Identifier: Apache-2.0
"""Packages installed in a container by a user who is root there alone."""

from __future__ import annotations

import pytest

from tests.integration.pyxis.conftest import Containers

pytestmark = pytest.mark.integration

# The jail itself as an image, without what apt does not need; not compressed, for it is used once. The
# package wants another owner for its file, as many do.
_MAKE = r"""set -eu
cd /opt; rm -rf debian.sqsh hello
printf '#!/bin/sh\nexec "$@"\n' > rc
mksquashfs / debian.sqsh -noappend -quiet -no-progress -no-xattrs -noI -noD -noF -wildcards \
    -p 'etc/rc f 755 0 0 cat /opt/rc' -e etc/rc 'home/*' 'proc/*' 'sys/*' 'dev/*' 'tmp/*' 'run/*' \
    'opt/*' 'mnt/*' 'root/*' 'var/cache/*' 'var/log/*' 'usr/share/doc/*' 'usr/share/man/*' \
    'usr/share/locale/*' 'usr/include/*' 'usr/local/nvidia/*'
mkdir -p hello/DEBIAN hello/opt hello/usr/bin; echo hello > hello/opt/hello
printf '#!/bin/sh\necho "hello from $0"\n' > hello/usr/bin/hello-cellblock
chmod 4755 hello/usr/bin/hello-cellblock
for line in 'Package: hello-cellblock' 'Version: 1' 'Architecture: all' 'Maintainer: t <t@example.org>' \
    'Description: t'; do echo "$line"; done > hello/DEBIAN/control
printf '#!/bin/sh\nset -e\nchown daemon:daemon /opt/hello\n' > hello/DEBIAN/postinst
chmod 0755 hello/DEBIAN/postinst
dpkg-deb --build --root-owner-group hello hello.deb
chmod 0644 debian.sqsh hello.deb
"""


def test_apt_installs_in_a_container(containers: Containers) -> None:
    """A package of setuid files and of another user's; the next step uses it while the first goes on."""
    containers.cluster.jail("sh", "-c", _MAKE).ok()
    image = "--container-image=/opt/debian.sqsh --container-remap-root --container-writable"
    install = """set -eu
        apt-get install -y /opt/hello.deb; cat /opt/hello; dpkg -s hello-cellblock
        stat -c "%n %u:%g %a" /opt/hello /usr/bin/hello-cellblock
        touch /mnt/installed; while [ ! -e /mnt/used ]; do sleep 0.1; done"""
    use = 'pwd; id -u; hello-cellblock; stat -c "%u:%g" hello; rm /opt/hello; ls; touch /mnt/used'
    script = f"""
        mkdir -p ~/apt; rm -f ~/apt/*
        mounts=/opt/hello.deb,$HOME/apt:/mnt
        srun --overlap {image} --container-mounts=$mounts sh -c '{install}' > ~/apt/first &
        while [ ! -e ~/apt/installed ] && kill -0 $!; do sleep 0.1; done
        srun --overlap --container-name=$SLURM_JOB_ID.0:exec --container-workdir=/opt sh -c '{use}' || true
        touch ~/apt/used; wait || true; echo --; cat ~/apt/first"""
    try:
        done = containers.script(script, "-n1")
        second, _, first = done.out.partition("--\n")
        assert "\nhello\n" in first, done
        assert "Status: install ok installed" in first
        # One uid is all there is: its own, which is root in the container.
        assert "/opt/hello 0:0 644\n/usr/bin/hello-cellblock 0:0 4755\n" in first
        assert second.splitlines() == ["/opt", "0", "hello from /usr/bin/hello-cellblock", "0:0", "hello.deb"]
    finally:
        containers.cluster.jail("rm", "-rf", "/opt/debian.sqsh", "/opt/hello", "/opt/hello.deb", "/opt/rc")
