# SPDX-License-Identifier: Apache-2.0
"""What tests of the libraries share with those of the jail."""

from tests.spank_jail.conftest import namespaces

__all__ = ["namespaces"]
