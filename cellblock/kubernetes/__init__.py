# SPDX-License-Identifier: Apache-2.0
"""Renders a cluster, or its jail alone, as manifests for Kubernetes (`build.py render kubernetes`)."""
