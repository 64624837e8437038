# SPDX-License-Identifier: Apache-2.0
"""The checks of an audit, one module each; cellblock/attest/audit.py runs them."""
