# SPDX-License-Identifier: Apache-2.0
"""The sidecar's package lies in an image, and is imported from there."""

from __future__ import annotations

import sys

from cellblock.paths import PROJECT

sys.path.insert(0, str(PROJECT / "images/node-pods/files/usr/lib/python3/dist-packages"))
