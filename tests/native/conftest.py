# SPDX-License-Identifier: Apache-2.0
"""Shares fixtures between the tests of the C libraries and those of the jail."""

from tests.spank_jail.conftest import namespaces

__all__ = ["namespaces"]
