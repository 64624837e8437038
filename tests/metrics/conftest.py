# SPDX-License-Identifier: Apache-2.0
"""Makes the exporter's package importable for the tests, as it lies in an image's files."""

from __future__ import annotations

import sys

from cellblock.paths import PROJECT

sys.path.insert(0, str(PROJECT / "images/metrics/files/usr/lib/python3/dist-packages"))
