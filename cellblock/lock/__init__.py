# SPDX-License-Identifier: Apache-2.0
"""The closure of packages of all images of a variant: resolved once, pinned by version and SHA-256."""
