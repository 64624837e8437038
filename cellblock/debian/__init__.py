# SPDX-License-Identifier: Apache-2.0
"""Reads dpkg's and apt's files: databases of installed packages, debs, and apt's messages when it fails."""
