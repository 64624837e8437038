# SPDX-License-Identifier: Apache-2.0
"""Makes a volume from a few packages, and upgrades it as a test asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deb_trees import Deb, DebTree

from cellblock.events import Events
from cellblock.jail.apply.transaction_runner import UpgradeResult
from cellblock.jail.assemble import assemble
from cellblock.jail.merge.change_plan import Plan
from cellblock.jail.rollback import rollback
from cellblock.jail.upgrade import plan_upgrade, upgrade

FOO, BAR, LIB, APP = (Deb(name, "1") for name in ("foo", "bar", "lib", "app"))
FOO2, LIB2 = Deb("foo", "2"), Deb("lib", "2")


@dataclass
class Jail:
    """A volume made from `old`, which `new` upgrades."""

    folder: Path

    def __post_init__(self) -> None:
        self.path = self.folder / "volume"
        self.debs = self.folder / "debs"
        self.debs.mkdir()
        self.events = Events()

    @property
    def root(self) -> Path:
        return self.path / "root"

    @property
    def tree(self) -> DebTree:
        return DebTree(self.root, self.debs)

    def image(self, name: str, *packages: Deb) -> DebTree:
        return DebTree.make(self.folder / name, self.debs, *packages)

    def assemble(self, *packages: Deb) -> DebTree:
        old = self.image("old", *packages)
        assemble(str(old.root), self.path, self.events)
        return old

    def plan(self, name: str = "new") -> Plan:
        return plan_upgrade(str(self.folder / name), self.path)

    def upgrade(self, name: str = "new") -> UpgradeResult:
        return upgrade(str(self.folder / name), self.path, self.events)

    def rollback(self) -> UpgradeResult:
        return rollback(self.path, self.events)

    def read(self, name: str) -> str:
        return (self.root / name).read_text()

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def timeless(seen: dict[bytes, tuple[object, ...]]) -> dict[bytes, tuple[object, ...]]:
    """Without the times of directories, which change with what is in them."""
    return {
        path: (*found[:3], *found[4:]) if str(found[0]).startswith("0o4") else found
        for path, found in seen.items()
    }


def kept_or_conflict(plan: Plan) -> dict[str, str]:
    return {one.path.decode(): one.kind for one in plan.findings}
