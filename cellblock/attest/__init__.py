# SPDX-License-Identifier: Apache-2.0
"""Writes documents about an image (bill of materials, provenance, signature), and audits images.

cellblock/release/ calls it for images that are to be published.
"""
