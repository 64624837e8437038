# SPDX-License-Identifier: Apache-2.0
"""Makes and runs the containers of a cluster, by podman or Docker."""
