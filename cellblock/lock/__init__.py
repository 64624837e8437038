# SPDX-License-Identifier: Apache-2.0
"""Resolves all packages of all images of a variant once, and pins them by version and SHA-256 in a lock."""
