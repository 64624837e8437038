# SPDX-License-Identifier: Apache-2.0
"""Recipes as stages of a Containerfile, and the programs that take images: dockerd, buildah's, skopeo."""
