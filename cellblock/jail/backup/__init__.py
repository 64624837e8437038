"""Backups of the jail volume; restic does the storing.

`backup` makes a snapshot, `restore` brings one back, whole or one path of it; `reconcile` compares what
restic restored with what was backed up, and repairs what restic loses.
"""
