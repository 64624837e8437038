"""The jail volume: one directory tree on a shared volume that every job sees as `/`.

`assemble` fills it; `Volume` says what is in it. See docs of each module: entry (what a file is),
manifest (the recorded list), source and feeding (where an image comes from), image_core (how it is written),
catalogue (how it is read for an upgrade).
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
