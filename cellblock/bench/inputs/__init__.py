# SPDX-License-Identifier: Apache-2.0
"""Makes the container images and the tree of files that benchmarks read."""
