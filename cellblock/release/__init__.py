# SPDX-License-Identifier: Apache-2.0
"""Built images before others have them: found where they lie, audited, attested, signed."""
