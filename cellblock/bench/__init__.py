"""Benchmarks: what docs/benchmarks.md says, measured anew on this machine."""
