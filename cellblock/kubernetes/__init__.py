# SPDX-License-Identifier: Apache-2.0
"""The cluster on Kubernetes: its objects as data, from the cluster file, and the jail's part of them."""
