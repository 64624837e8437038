# SPDX-License-Identifier: Apache-2.0
"""The commands about images: list, build, lock, inspect, audit, publish."""
