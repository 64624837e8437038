# SPDX-License-Identifier: Apache-2.0
from tests.attest.conftest import billed, layout, make, write_policy

__all__ = ["billed", "layout", "make", "write_policy"]
