# SPDX-License-Identifier: Apache-2.0
"""Documents about an image for others: bill of materials, provenance, signature; and the audit of images."""
