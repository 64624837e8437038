# SPDX-License-Identifier: Apache-2.0
"""The containers of a cluster, and podman or docker that runs them."""
