"""File trees: their entries, the manifest that records one, and safe reading of a tree that users change."""
