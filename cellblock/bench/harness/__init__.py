# SPDX-License-Identifier: Apache-2.0
"""Provides what benchmarks need: temporary folders, slow file systems, registries, a Kubernetes."""
