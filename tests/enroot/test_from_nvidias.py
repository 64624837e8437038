# SPDX-License-Identifier: Apache-2.0
"""Files of NVIDIA's enroot, written as its public documentation describes them, are read as they are.

docs/from-enroot-and-pyxis.md promises it.
"""

from __future__ import annotations

from tests.enroot.conftest import Enroot


def test_an_installation_of_files_is_read_as_it_is(enroot: Enroot) -> None:
    enroot.write(
        enroot.sysconf / "enroot.conf",
        """\
        #ENROOT_LIBRARY_PATH        /usr/lib/enroot
        #ENROOT_SYSCONF_PATH        /etc/enroot
        ENROOT_RUNTIME_PATH         ${XDG_RUNTIME_DIR}/enroot-$(id -u)
        ENROOT_DATA_PATH            ${HOME}/.local/share/enroot
        #ENROOT_TEMP_PATH           ${TMPDIR:-/tmp}

        # Options passed to mksquashfs.
        ENROOT_SQUASH_OPTIONS       -comp lzo -noD
        ENROOT_ZSTD_OPTIONS         -1
        ENROOT_MAX_PROCESSORS       $(nproc)
        ENROOT_CONNECT_TIMEOUT      30
        ENROOT_TRANSFER_RETRIES     0
        ENROOT_LOGIN_SHELL          no
        ENROOT_ROOTFS_WRITABLE      yes
        ENROOT_REMAP_ROOT           n
        NVIDIA_DRIVER_CAPABILITIES  compute,utility
        no_proxy                    localhost,127.0.0.1
        """,
    )
    enroot.write(
        enroot.sysconf / "environ.d/20-site.env", "SITE_SCRATCH=/scratch\n# a comment\nNCCL_DEBUG=INFO\n"
    )
    enroot.write(
        enroot.sysconf / "mounts.d/30-site.fstab", "tmpfs ${SITE_SCRATCH} tmpfs x-create=dir,size=1m\n"
    )
    hook = '#!/usr/bin/env bash\nset -eu\necho "FROM_HOOK=${ENROOT_PID:+yes}" >> "${ENROOT_ENVIRON}"\n'
    enroot.write(enroot.sysconf / "hooks.d/50-site.sh", hook, 0o755)
    enroot.write(enroot.config / "environ.d/10-mine.env", "MINE=1\n")
    said = enroot.sh(
        'echo "$NCCL_DEBUG $MINE $FROM_HOOK"; touch /written; grep -c " /scratch " /proc/self/mounts'
    )
    assert said.split() == ["INFO", "1", "yes", "1"]
    told = enroot.out("info")
    assert "ENROOT_SQUASH_OPTIONS=-comp lzo -noD" in told
    assert "ENROOT_REMAP_ROOT=no" in told or "ENROOT_REMAP_ROOT=n" in told


def test_layers_of_an_old_cache_are_left_alone(enroot: Enroot) -> None:
    old = enroot.write(enroot.home / ".cache/enroot" / ("0123456789abcdef" * 4), "a layer, compressed anew")
    assert enroot.sh("echo runs") == "runs"
    assert old.read_text() == "a layer, compressed anew"
