# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: what docs/benchmarks.md says, measured anew on this machine."""
