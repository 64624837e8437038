# SPDX-License-Identifier: Apache-2.0
"""Numbers and names of files as a person reads them."""
