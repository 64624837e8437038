"""Looks after what builds keep below CELLBLOCK_CACHE: what it takes, what goes first, whether it is whole."""

from cellblock.upkeep.kept import Kept, KeptKind, kept
from cellblock.upkeep.trimming import Trimmed, trim

__all__ = ["Kept", "KeptKind", "Trimmed", "kept", "trim"]
