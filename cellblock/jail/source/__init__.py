# SPDX-License-Identifier: Apache-2.0
"""Reads the sources of a jail's files: images, OCI layouts, registries, tars and directories."""
