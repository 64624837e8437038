# SPDX-License-Identifier: Apache-2.0
"""Lists what a merge does to packages, for the plan that `jail upgrade` prints.

It also tells when the C library changes, for which an upgrade asks for an option.
"""

from __future__ import annotations

from cellblock.jail.merge.change_plan import PackageChange
from cellblock.jail.merge.package_choice import Choices
from cellblock.jail.tree.dpkg_database import Database


def package_changes(choices: Choices, base: Database, new: Database, tree: Database) -> list[PackageChange]:
    """List the packages that a merge changes, and those that it keeps although the image has others."""
    found = []
    for key, side in sorted(choices.side.items()):
        ours, theirs = new.installed.get(key), tree.installed.get(key)
        before, why = theirs.version if theirs else "", choices.why.get(key, "")
        if side == "image" and ours is not None and ours.version != before:
            verdict = "update" if before else "add"
            found.append(PackageChange(key, verdict, before, ours.version, why))  # type: ignore[arg-type]
        elif side == "none" and before:
            found.append(PackageChange(key, "remove", before, "", why))
        elif side == "tree" and not base.installed and ours is not None and ours.version == before:
            continue  # of an adopted tree nearly all are so
        elif side == "tree" and (ours is not None or key in base.installed):
            found.append(PackageChange(key, "kept", before, before, why))
        elif side == "none" and ours is not None:
            found.append(PackageChange(key, "kept", "", "", why))
    return found


def new_glibc(choices: Choices, new: Database, tree: Database) -> tuple[str, str] | None:
    """The upstream versions of the C library before and after, if another one comes."""
    for key, package in tree.installed.items():
        if package.name == "libc6" and choices.side.get(key) == "image":
            before, after = (one[key].version.partition("-")[0] for one in (tree.packages, new.packages))
            if before != after:
                return before, after
    return None
