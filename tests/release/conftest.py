# SPDX-License-Identifier: Apache-2.0
"""What tests of attestations make their images with."""

from tests.attest.conftest import billed, layout, make, write_policy

__all__ = ["billed", "layout", "make", "write_policy"]
