# SPDX-License-Identifier: Apache-2.0
"""Writes images as Containerfiles, and runs programs that build or store images: dockerd, buildah, skopeo."""
