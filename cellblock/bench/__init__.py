# SPDX-License-Identifier: Apache-2.0
"""Measures what docs/benchmarks.md reports, anew on this machine (`build.py bench`).

inputs/    makes what benchmarks read
harness/   provides what they need, such as registries and temporary folders
peers/     measures the programs that Cellblock is compared with
parts/     parts of the benchmarks below
*.py       one module for each `build.py bench NAME`
"""
