# SPDX-License-Identifier: Apache-2.0
"""Built images on their way to others: found by name, audited, attested, signed and pushed."""
