"""The jail volume: one directory tree on a shared volume that every job sees as `/`.

`assemble` fills it; `Volume` says what is in it. See docs of each module: entry (what a file is),
manifest (the recorded list), tree and archive (where entries come from), writer (how they get there).
"""

from cellblock.jail.assemble import AssembleResult, Options, OtherSourceError, assemble
from cellblock.jail.shards import Shard
from cellblock.jail.source import SourceIdentity
from cellblock.jail.volume import Volume, VolumeState

__all__ = [
    "AssembleResult",
    "Options",
    "OtherSourceError",
    "Shard",
    "SourceIdentity",
    "Volume",
    "VolumeState",
    "assemble",
]
