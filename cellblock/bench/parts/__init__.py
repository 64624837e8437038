# SPDX-License-Identifier: Apache-2.0
"""Holds parts of benchmarks: `volume_upgrade.py` is a part of `volume.py`, run by `bench volume`."""
