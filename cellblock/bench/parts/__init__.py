# SPDX-License-Identifier: Apache-2.0
"""Measures parts of the benchmarks in the folder above: `volume_upgrade.py` is a part of `volume.py`."""
