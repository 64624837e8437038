# SPDX-License-Identifier: Apache-2.0
"""Files: written whole, locked, hashed."""
