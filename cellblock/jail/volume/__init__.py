"""A jail volume on disk: its records, its lock, its history, and what its filesystem can hold."""
