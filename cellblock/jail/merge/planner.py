# SPDX-License-Identifier: Apache-2.0
"""Makes the upgrade plan of an upgrade or rollback: which files follow the image, and which stay the users'.

It goes through all paths and asks the other modules of this folder about each.
"""

from __future__ import annotations

import contextlib
import hashlib
import heapq
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from cellblock.errors import CellblockError
from cellblock.jail.merge.action_lists import ActionList
from cellblock.jail.merge.alternatives import links_of_users
from cellblock.jail.merge.change_plan import Action, Finding, Operation, Plan, Verb
from cellblock.jail.merge.generated_files import is_generated
from cellblock.jail.merge.identities import between, renumbered
from cellblock.jail.merge.new_diversions import NewDiversions
from cellblock.jail.merge.package_changes import new_glibc, package_changes
from cellblock.jail.merge.package_choice import Choices, choose
from cellblock.jail.merge.package_files import PackageFiles
from cellblock.jail.merge.record_merge import merge_databases
from cellblock.jail.merge.three_way import Outcome, content, merge
from cellblock.jail.merge.users_folders import left_to_users
from cellblock.jail.source.identity import SourceIdentity
from cellblock.jail.tree import digests
from cellblock.jail.tree.access import Blocked, TreeAccess
from cellblock.jail.tree.databases import ACCOUNTS, INFO, STATUS, SystemDatabases, of_tree
from cellblock.jail.tree.dpkg_database import Database, info_owner, link_target, linked_folders
from cellblock.jail.tree.entry import Entry, order, shown
from cellblock.jail.tree.file_handle import FileHandle, Stamp, UnreadableError
from cellblock.jail.tree.manifest_diff import Changes, PathDiff

_TRIES = 3
"""How often a plan is made while users change databases: by then they do so without end."""
_MOST_HASHED = 8 << 30
"""Bytes of a file that is hashed whatever its size: no package has a larger one, and users may have."""
_TOGETHER = 2048
"""Files whose content is read and hashed before they are decided on."""
_LD_CACHE = b"etc/ld.so.cache"


def make_plan(
    changes: Changes,
    root: Path,
    *,
    operation: Operation,
    base_manifest: str,
    source: SourceIdentity,
) -> Plan:
    """Merge `changes` into the tree at `root`, on paper. Raises CellblockError when that cannot end well."""
    for _ in range(_TRIES):
        with TreeAccess(os.fsencode(root)) as access:
            planner = _Planner(changes, access)
            planner.plan()
        if not planner.moved:
            break
    return Plan(
        operation,
        base_manifest,
        source,
        planner.actions.sort(downgrade=operation == "rollback"),
        tuple(sorted(planner.findings, key=lambda one: order(one.path))),
        tuple(package_changes(planner.choices, planner.base, planner.new, planner.tree)),
        new_glibc(planner.choices, planner.new, planner.tree),
        planner.regenerate,
        planner.contents,
    )


@dataclass
class _Seen:
    """A file of the tree. `md5` is that of its content, where dpkg's record of it is asked."""

    entry: Entry | None
    stamp: Stamp | None
    md5: str = ""


@dataclass
class _Planner:
    changes: Changes
    access: TreeAccess
    actions: ActionList = field(default_factory=ActionList)
    findings: list[Finding] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    regenerate: bool = False
    moved: list[bytes] = field(default_factory=list)
    """Databases that users changed between the reading and the end of the planning."""
    _blocked: set[bytes] = field(default_factory=set)
    _made: set[bytes] = field(default_factory=set)
    """Paths that become directories, or are some."""
    _known: digests.Known = field(default_factory=dict)

    def plan(self) -> None:
        tree_controls = of_tree(self.access)
        aliases = linked_folders(self.access)
        new = renumbered(self.changes.new, tree_controls)
        self.base = Database(self.changes.base, aliases)
        self.new = Database(new, aliases)
        self.tree = Database(tree_controls, aliases)
        self.choices = choose(self.base, self.new, self.tree) if self.new.packages else Choices()
        if self.choices.problems:
            lines = "\n  ".join(f"{one.package}: {one.relation}" for one in self.choices.problems[:10])
            raise CellblockError(
                f"users' packages and the image's do not fit together; nothing was changed:\n  {lines}",
                hint="in the jail, upgrade or remove these packages with apt, then run this again",
            )
        merged = merge_databases(
            self.changes.base, new, tree_controls, (self.base, self.new, self.tree), self.choices
        )
        # Where users changed nothing, or just what the image changed, it is a file like others.
        merged = {
            path: text
            for path, text in merged.items()
            if not self._is_plain(path, tree_controls[path], new.get(path))
        }
        after = {**tree_controls, **merged}
        self._list_unreadable(tree_controls)
        self.ids = (between(self.changes.base, after), between(self.changes.new, after))
        self.owned = PackageFiles(self.choices, self.new, self.tree)
        self._diversions = NewDiversions(self.base, self.new, self.tree, self.owned)
        self._links = links_of_users(new, merged, lambda path: link_target(self.access, path))
        mine: dict[bytes, PathDiff] = {}
        candidates = self._candidates()
        while some := list(islice(candidates, _TOGETHER)):
            mine.update((path, pair) for path, pair in some if path in merged)
            some = [(path, pair) for path, pair in some if path and path not in merged]
            self._known = digests.of_small_files(self.access, (path for path, _ in some))
            for path, pair in some:
                self._path(path, pair)
        self._known = {}
        for path, text in merged.items():
            if text == tree_controls[path]:
                continue
            self._put_merged(path, text, tree_controls[path], mine.get(path))
        findings, displaced = left_to_users(self.actions, self.access)
        self.findings += findings
        for action in displaced:
            if action.after is not None and action.after.kind in "fl":
                self._put_beside(action.path, action.after)
        self._join_links()

    def _list_unreadable(self, tree: SystemDatabases) -> None:
        """List what users put in the place of a database: of what it listed nothing is known."""
        for path in (*ACCOUNTS, STATUS):
            if path in self.changes.base and path not in tree:
                with contextlib.suppress(Blocked):
                    if self.access.status(path) is not None:
                        self._conflict(path, "is no file, so the jail counts as without what it lists")

    def _is_plain(self, path: bytes, tree: bytes, new: bytes | None) -> bool:
        if new != self.changes.new.get(path):
            return False  # renumbered
        return tree in (self.changes.base.get(path), new)

    def _candidates(self) -> Iterator[tuple[bytes, PathDiff]]:
        """Paths to decide on, in order, and the image's two entries with the tree's numbers of owners."""
        found = self.changes.paths
        missing = {path for path in self.owned.replaced if path not in found}
        records = self.owned.records_of_replaced(self.access.names(INFO.rstrip(b"/")))
        missing |= {path for path in records if path not in found}
        groups = self.changes.groups() if found else {}
        for first, names in groups.items():
            if any(name in found for name in names):
                missing |= {name for name in (first, *names) if name not in found}
        known = self.changes.look_up(missing) if missing else {}
        more = ((path, PathDiff(known.get(path), known.get(path))) for path in sorted(missing, key=order))
        self._groups = groups
        base, new = self.ids
        for path, pair in heapq.merge(found.items(), more, key=lambda one: order(one[0])):
            yield path, PathDiff(base.apply(pair.base), new.apply(pair.new))

    def _path(self, path: bytes, pair: PathDiff) -> None:
        path, diverted = self._diverted(path)
        if diverted:
            pair = PathDiff(
                pair.base and pair.base._replace(path=path), pair.new and pair.new._replace(path=path)
            )
        if pair.new is not None and (moved := self._diversions.moved(path, self.access)):
            pair = pair._replace(new=moved[0])
            self.contents[moved[0].digest] = moved[1]
        try:
            seen = self._see(path, pair)
        except UnreadableError as error:
            self._conflict(path, str(error))
            return
        except Blocked as error:
            if error.path in self._made:  # it becomes a directory
                self._act(path, merge(None, pair.new, None), _Seen(None, None), pair)
                return
            if pair.new is not None and error.path not in self._blocked:
                self._block(error.path)
            return
        if (diverted_here := self._diversions.outcome(path, seen.entry, pair.new, self.access)) is not None:
            self._act(path, diverted_here, seen, pair)
            return
        if self.owned.holds(path):
            self._list_rival(path, seen, pair)
            return
        base = self._effective_base(path, pair, seen)
        outcome = merge(base, pair.new, seen.entry)
        target = self._links.get(path)
        if target is not None and pair.new is None and seen.entry is not None and seen.entry.kind == "l":
            if seen.entry.target == target:
                return
            outcome = Outcome("update", seen.entry._replace(target=target, size=len(target)))
        if pair.new is not None and pair.new.kind == "d" and seen.entry is None and outcome.verdict == "same":
            return
        self._act(path, outcome, seen, pair)

    def _list_rival(self, path: bytes, seen: _Seen, pair: PathDiff) -> None:
        """Two packages with one path, the users' and the image's: what dpkg would refuse is a conflict."""
        rival = self.owned.rival(path)
        new, was, now = pair.new, content(pair.base), content(seen.entry)
        if rival is None or new is None or new.kind == "d" or content(new) in (was, now):
            return
        if rival.replaces or now is None:
            self._act(path, Outcome("kept", seen.entry, None, rival.why), seen, pair)
        else:
            self._act(path, Outcome("conflict", seen.entry, new, rival.why), seen, pair)

    def _diverted(self, path: bytes) -> tuple[bytes, bool]:
        """Return the real path of a package's file that users diverted (dpkg-divert(1))."""
        found = self.tree.diversions.get(path)
        if found is None or path in self.base.diversions or path in self.new.diversions:
            return path, False
        to, package = found
        owner = self.owned.owner_of(path)
        return (to, True) if owner is None or owner != package else (path, False)

    def _conflict(self, path: bytes, why: str) -> None:
        self.findings.append(Finding("conflict", path, why))

    def _block(self, path: bytes) -> None:
        """List a directory that is none any more, once."""
        if path not in self._blocked:
            self._blocked.add(path)
            self._conflict(path, "is no directory any more; the image has files below it")

    def _see(self, path: bytes, pair: PathDiff, most: int = _MOST_HASHED) -> _Seen:
        """The file in the tree, by one look; hashed up to `most` bytes. Raises Blocked, UnreadableError."""
        handle = self.access.open_handle(path)
        if handle is None:
            return _Seen(None, None)
        with handle:
            return self._of_look(path, handle, pair, most)

    def _of_look(self, path: bytes, handle: FileHandle, pair: PathDiff, most: int) -> _Seen:
        stamp = Stamp.of(handle.status)
        digest, sizes = self._known.get((path, stamp)), {entry.size for entry in pair if entry is not None}
        judged_by_itself = path in self.owned.replaced or info_owner(path) is not None
        if digest is None and sizes and stamp.size not in sizes and not judged_by_itself:
            digest = ""  # neither image's, whatever is in it: it may have a terabyte by now
        if digest is None and stamp.size > most:
            digest = ""
        md5 = handle.digest("md5", most) if handle.kind == "f" and self.owned.md5(path) else ""
        return _Seen(handle.entry(path, digest), stamp, md5)

    def _effective_base(self, path: bytes, pair: PathDiff, seen: _Seen) -> Entry | None:
        """Return the file as it would be untouched: the old image's, or of the users' package version."""
        if info_owner(path) is not None:
            return seen.entry
        key = self.owned.replaced.get(path)
        if key is None or seen.entry is None:
            # A package that users removed and that is needed again brings its files.
            return None if key is not None and key not in self.tree.installed else pair.base
        if key not in self.tree.packages:
            return pair.base
        if seen.entry.kind != "f":
            return seen.entry
        wanted = self.owned.md5(path)
        if wanted is not None and wanted != seen.md5:
            return pair.base if path not in self.tree.packages[key].conffiles else None
        return seen.entry if wanted is not None else pair.base

    def _act(self, path: bytes, outcome: Outcome, seen: _Seen, pair: PathDiff) -> None:
        generated = is_generated(path)
        if outcome.verdict in ("kept", "conflict"):
            if path == _LD_CACHE:
                self.regenerate = True
            if generated:
                return
            kind = "d" if seen.entry is not None and seen.entry.kind == "d" else ""
            self.findings.append(Finding(outcome.verdict, path, outcome.why))
            if outcome.beside is not None and outcome.beside.kind in "fl" and kind != "d":
                self._put_beside(path, outcome.beside)
            return
        if outcome.verdict == "same":
            return
        verb: Verb
        if outcome.result is None:
            assert seen.entry is not None
            verb = "rmdir" if seen.entry.kind == "d" else "remove"
        elif outcome.result.kind == "d":
            verb = "metadata" if seen.entry is not None and seen.entry.kind == "d" else "mkdir"
            if verb == "metadata" and seen.entry is not None:
                result = outcome.result._replace(mtime_ns=0)
                if result == seen.entry:
                    return
                outcome = outcome._replace(result=result)
        else:
            verb = "metadata" if outcome.verdict == "metadata" else "put"
        if verb in ("mkdir", "put"):
            self._need_parent(path)
        if outcome.result is not None and outcome.result.kind == "d":
            self._made.add(path)
        self.actions.append(Action(verb, path, seen.entry, outcome.result, seen.stamp))

    def _put_beside(self, path: bytes, entry: Entry) -> None:
        name = path + (b".dpkg-dist" if self._is_conffile(path) else b".cellblock-new")
        try:
            seen = self._see(name, PathDiff(None, entry))
        except Blocked as error:
            self._block(error.path)
            return
        except UnreadableError as error:
            self._conflict(name, str(error))
            return
        after = entry._replace(path=name)
        if seen.entry == after:
            return
        self.actions.append(
            Action("put", name, seen.entry, after, seen.stamp, f"beside {shown(path)}", beside=True)
        )

    def _is_conffile(self, path: bytes) -> bool:
        if not hasattr(self, "_conffiles"):
            self._conffiles = {
                self.new.plain(one) for package in self.new.installed.values() for one in package.conffiles
            }
        return path in self._conffiles

    def _need_parent(self, path: bytes) -> None:
        """Plan the directories that a new file needs and users removed."""
        parent = path.rpartition(b"/")[0]
        if not parent or parent in self._made:
            return
        try:
            if self.access.status(parent) is not None:
                return
        except Blocked:
            return  # since the look at the file; then it is left, and listed, when it is to be made
        self._need_parent(parent)
        found = self.changes.look_up([parent]).get(parent)
        entry = self.ids[1].apply(found) or Entry(parent, "d", 0o755, 0, 0, 0, 0)
        self._made.add(parent)
        self.actions.append(Action("mkdir", parent, None, entry, None, "for files below it"))

    def _put_merged(self, path: bytes, text: bytes, merged_from: bytes, pair: PathDiff | None) -> None:
        """Plan the merged database `text`, of which `merged_from` was the tree's."""
        try:
            seen = self._see(path, PathDiff(None, None), most=len(merged_from))
        except (Blocked, UnreadableError):
            seen = _Seen(None, None)
        if seen.entry is None or seen.entry.digest != hashlib.sha256(merged_from).hexdigest():
            # Put there all the same it would undo what users wrote since, a new account for example.
            self.moved.append(path)
            self._conflict(path, "users changed it while this was planned; the image's changes to it wait")
            return
        digest = hashlib.sha256(text).hexdigest()
        self.contents[digest] = text
        new = pair.new if pair else None
        # A time that is a function of the inputs, so that planning twice gives one plan.
        mtime = max(seen.entry.mtime_ns, new.mtime_ns if new else 0)
        after = seen.entry._replace(size=len(text), digest=digest, mtime_ns=mtime)
        self.actions.append(Action("put", path, seen.entry, after, seen.stamp, "merged"))

    def _join_links(self) -> None:
        """Make names of one file in the image names of one file in the tree too, where all are put."""
        if not self._groups:
            return
        puts = self.actions.puts({name for one in self._groups.items() for name in (one[0], *one[1])})
        for first, names in self._groups.items():
            members = [name for name in dict.fromkeys((first, *names)) if name in puts]
            for name in members[1:]:
                (_, lead), (number, action) = puts[members[0]], puts[name]
                if (
                    lead.after
                    and action.after
                    and lead.after._replace(path=b"") == action.after._replace(path=b"")
                ):
                    self.actions.put(number, replace(action, link=members[0]))
