# SPDX-License-Identifier: Apache-2.0
"""What the administrator says in plugstack.conf: an importer, entrypoints, names that go with their job."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.jobs import home, script_file
from tests.integration.plugstack import changed_plugstack
from tests.integration.pyxis.conftest import IMAGE, Containers

pytestmark = pytest.mark.integration

# Two of its images there are not; the log is the user's, who runs it.
IMPORTER = f"""#!/bin/sh
echo "$* by $(id -un)" >> "$HOME/importer.log"
case "$*" in
    "get docker://none"*) echo "no such image" >&2; exit 3 ;;
    "get docker://wrong"*) echo "relative.sqsh" ;;
    get*) echo {IMAGE}; echo "more" ;;
esac
"""


@pytest.fixture(scope="module")
def changed(containers: Containers) -> Iterator[Containers]:
    """The cluster with importer=, execute_entrypoint=1, container_scope=job and image_mount=kernel."""
    cluster = containers.cluster
    program = script_file(cluster, containers.user, "importer", IMPORTER)
    words = f"importer={program} execute_entrypoint=1 container_scope=job image_mount=kernel"
    with changed_plugstack(cluster, lambda text: text.replace("pyxis.so ", f"pyxis.so {words} ")):
        yield containers


def test_an_importer_gets_and_releases(changed: Containers) -> None:
    log = home(changed.cluster, changed.user) / "importer.log"
    log.unlink(missing_ok=True)
    done = changed.run("-n2", "--overcommit", "--container-image=team/any:1", "cat", "/etc/os-release")
    assert done.ok().count("a test image") == 2
    assert done.err.count("pyxis: imported docker image: team/any:1\n") == 1
    assert log.read_text().splitlines() == [
        f"get docker://team/any:1 by {changed.user}",
        f"release by {changed.user}",
    ]
    done = changed.run("--container-image=none", "true")
    assert "pyxis: failed to import docker image: none\n" in done.err
    assert "the importer ended with status 3" in done.err
    assert "pyxis: printing importer log file:\npyxis:     no such image\n" in done.err
    assert 'no absolute path: "relative.sqsh"' in changed.run("--container-image=wrong", "true").err


def test_entrypoints_run_unless_told_otherwise(changed: Containers) -> None:
    ask = ("sh", "-c", 'echo "${FROM_RC:-not run}"')
    assert changed.image(*ask).ok() == "entered\n"
    assert changed.image("--no-container-entrypoint", *ask).ok() == "not run\n"
    assert changed.image(*ask, PYXIS_CONTAINER_ENTRYPOINT="no").ok() == "not run\n"


def test_names_go_with_their_job(changed: Containers) -> None:
    folder = home(changed.cluster, changed.user) / ".local/share/enroot"
    script = f"""srun --container-image={IMAGE} \\
            --container-name=mine --container-writable sh -c 'echo kept > /kept'
        srun --container-name=mine cat /kept; echo "$SLURM_JOB_ID"; ls ~/.local/share/enroot"""
    done = changed.script(script, "-n1")
    text, job, *names = done.out.split()
    assert text == "kept"
    assert f"pyxis_{job}_mine" in names
    changed.cluster.wait_until("the epilog removes it", lambda: not (folder / f"pyxis_{job}_mine").exists())
    assert 'no container "mine"' in changed.run("--container-name=mine", "true").err


def test_the_kernel_mounts_nothing_in_the_jail_and_root_is_told_why(changed: Containers) -> None:
    """a job there has no loop devices; of a user's images nothing is said, for they never are the kernel's"""
    done = changed.run(f"--container-image={IMAGE}", "true", user="root")
    assert done.status == 0
    assert (
        "pyxis: image_mount=kernel: ENROOT_KERNEL_IMAGES: squashfuse serves the image instead: " in done.err
    )
    done = changed.image("true")
    assert (done.status, done.err) == (0, "")
