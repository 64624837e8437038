# SPDX-License-Identifier: Apache-2.0
"""What a cluster is to be: its file, its names, and the types that all of this package speaks in."""
