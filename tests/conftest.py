"""Which tests may run side by side, when `build.py test` runs all of them with two workers.

A group runs in one worker, one test after the other: tests that share a cluster, a daemon or an image, or
else those of a file. The long groups come first, one that waits for Slurm beside one that computes, so that
the workers end together (docs/decisions/ci-side-by-side.md).
"""

from __future__ import annotations

import signal

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # A shell has what it starts in the background ignore it, and so would all that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# In this order; what is not named follows as it is collected. Seconds, of one worker alone on two cores.
_FIRST = (
    "cluster debian13",  # 380, mostly waiting
    "tests/integration/test_slurm_source.py",  # 160, both cores
    "tests/integration/test_soak.py",
    "cluster debian12",
    "tests/integration/docker_engine",
    "cluster debian14",
    "tests/integration/escape",
    "tests/integration/test_build.py",
    "tests/test_launcher.py",
    "tests/spank_jail/test_fuzz.py",
)
# Tests of one folder that share what is dear to make.
_FOLDERS = ("tests/integration/docker_engine", "tests/integration/escape")
# Has a cluster of the shared fixture's kind and is long: a group of its own, with a cluster of its own.
_APART = ("tests/integration/test_soak.py",)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Group the tests, and put the long groups first; one process runs them in the order of the files."""
    if not hasattr(config, "workerinput"):
        return
    groups = {item: group_of(item, config) for item in items}
    rank = {name: number for number, name in enumerate(_FIRST)}
    items.sort(key=lambda item: rank.get(groups[item], len(rank)))
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))


def group_of(item: pytest.Item, config: pytest.Config) -> str:
    """The group of a test: `cluster VARIANT`, a folder or a file."""
    path = item.path.relative_to(config.rootpath).as_posix()
    parameters = (
        item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    )
    if "cluster" in parameters and path not in _APART:
        return f"cluster {parameters['cluster']}"
    return next((folder for folder in _FOLDERS if path.startswith(f"{folder}/")), path)
