"""Looks after what builds keep below CELLBLOCK_CACHE: what it takes, what goes first, whether it is whole."""
