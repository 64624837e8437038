# SPDX-License-Identifier: Apache-2.0
"""Writes files whole, locks files, and computes their SHA-256."""
