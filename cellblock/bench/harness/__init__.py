# SPDX-License-Identifier: Apache-2.0
"""Provides what a measurement needs: temporary folders, slow file systems, registries, a Kubernetes."""
