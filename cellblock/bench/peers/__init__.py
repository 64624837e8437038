# SPDX-License-Identifier: Apache-2.0
"""Measures what others would use instead: buildah, Docker, podman, Charliecloud and Apptainer."""
