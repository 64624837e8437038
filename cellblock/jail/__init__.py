"""The jail volume: one directory tree on a shared volume that every job sees as `/`.

The folders, lowest first; each imports only those before it: tree, source, merge, volume, apply. The modules
beside them are the commands (`assemble`, `upgrade`, `rollback`, `verify`, `changes`, `initialise`); `backup`
is above all.
"""
