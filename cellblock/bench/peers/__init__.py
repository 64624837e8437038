# SPDX-License-Identifier: Apache-2.0
"""Measures the programs that Cellblock is compared with: buildah, Docker, podman, Charliecloud, Apptainer."""
