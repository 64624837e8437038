# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the cluster file; the other folders use its types to say what a cluster is made of."""
