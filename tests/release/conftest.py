# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of releases: the images of the tests of attestations."""

from tests.attest.conftest import billed, layout, make, write_policy

__all__ = ["billed", "layout", "make", "write_policy"]
