# SPDX-License-Identifier: Apache-2.0
"""Tests of the cluster on Kubernetes.

rendering/    what is rendered: schemas, privileges, names. Needs no Kubernetes.
cluster/      runs on a real Kubernetes of two nodes; skipped where there is none.
from_source/  makes that Kubernetes from Debian's source package.
helpers/      what the tests share.

The program of nodes on demand lies in an image, and is imported from there.
"""

from __future__ import annotations

import sys

from cellblock.paths import PROJECT

sys.path.insert(0, str(PROJECT / "images/node-pods/files/usr/lib/python3/dist-packages"))
