# SPDX-License-Identifier: Apache-2.0
"""Reads and writes images in the format of the Open Container Initiative, on disk and in registries."""
