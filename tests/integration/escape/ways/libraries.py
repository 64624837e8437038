# SPDX-License-Identifier: Apache-2.0
"""Attacks by libraries of the jail that a daemon outside might load."""

from __future__ import annotations

import shutil

from tests.integration.escape.arena import WORKER, Arena, Outcome, broken, escaped, held, read
from tests.integration.escape.ways.judge import changed, fresh


def _judge_loaded(arena: Arena, *, by_tasks: bool) -> Outcome:
    """Who loaded the library: programs of the jail may, Slurm's daemons may not."""
    loaded = arena.folder / "out" / "loaded"
    names = set(read(loaded).split())
    loaded.unlink(missing_ok=True)
    bad = sorted(name for name in names if name.startswith(("slurmstepd", "slurmd", "munged")))
    if bad:
        return escaped(f"{', '.join(bad)} loaded a library of the jail")
    if by_tasks and not names:
        return broken("nobody loaded the library: the way does not work at all")
    return held(f"loaded by {', '.join(sorted(names)) or 'nobody'}")


def preloaded_library(arena: Arena, user: str) -> Outcome:
    """Variables of the dynamic linker, exported by the job."""
    library = "/escape/lib/loaded.so"
    plain = arena.folder / "out" / "loaded"
    plain.unlink(missing_ok=True)
    variables = (f"LD_PRELOAD={library}", f"LD_AUDIT={library}", "LD_LIBRARY_PATH=/escape/lib")
    arena.cluster.jail("env", *variables, "srun", "-w", WORKER, "true", user=user)
    arena.sbatch("true", f"--export=ALL,{','.join(variables)}", "-o", "/dev/null", user=user)
    return _judge_loaded(arena, by_tasks=True)


def name_service_library(arena: Arena, user: str) -> Outcome:
    """The jail's nsswitch.conf names a service whose library is the jail's, and ld.so.preload one for all."""
    root = arena.cluster.root
    folder = next(path.parent for path in root.glob("usr/lib/*-linux-gnu/libc.so.6"))
    library = folder / "libnss_escape.so.2"
    shutil.copy(arena.folder / "lib" / "loaded.so", library)
    switch = root / "etc" / "nsswitch.conf"
    lines = "".join(f"{name}: escape files\n" for name in ("passwd", "group", "shadow"))
    lines += "hosts: escape files dns\n"
    try:
        with changed(switch, lines), changed(root / "etc" / "ld.so.preload", "/escape/lib/loaded.so\n"):
            arena.srun("id", "root", user=user)
            arena.sbatch("id root", "-o", f"{arena.inside(fresh(arena))}/0", user=user)
    finally:
        library.unlink()
    return _judge_loaded(arena, by_tasks=True)


def character_set_library(arena: Arena, user: str) -> Outcome:
    """Locales and character sets are files, and libraries, too."""
    folder = arena.folder / "lib" / "gconv"
    folder.mkdir(exist_ok=True)
    shutil.copy(arena.folder / "lib" / "loaded.so", folder / "ESCAPE.so")
    (folder / "gconv-modules").write_text(
        "module ESCAPE// INTERNAL ESCAPE 1\nmodule INTERNAL ESCAPE// ESCAPE 1\n"
    )
    inside = "/escape/lib/gconv"
    variables = (f"GCONV_PATH={inside}", f"LOCPATH={inside}", "LANG=xx_XX.ESCAPE", "LC_ALL=xx_XX.ESCAPE",
                 f"HWLOC_PLUGINS_PATH={inside}", f"UCX_MODULE_DIR={inside}",
                 f"PMIX_MCA_mca_base_component_path={inside}")  # fmt: skip
    arena.cluster.jail("env", *variables, "srun", "-w", WORKER, "true", user=user)
    arena.sbatch("iconv -f ESCAPE -t UTF-8 </etc/passwd", "-o", "/dev/null",
                 f"--export=ALL,{','.join(variables)}", user=user)  # fmt: skip
    return _judge_loaded(arena, by_tasks=False)


def plugin_by_path(arena: Arena, user: str) -> Outcome:
    """Options that become names of plugins."""
    target = "../../../../../mnt/jail/root/escape/lib/loaded"
    for option in (
        f"--mpi={target}",
        f"--profile={target}",
        f"--acctg-freq={target}=1",
        f"--container={target}",
    ):
        arena.srun("true", options=(option,), user=user)
    return _judge_loaded(arena, by_tasks=False)
