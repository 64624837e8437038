# SPDX-License-Identifier: Apache-2.0
"""Reads and checks the cluster file; its types say what a cluster is made of, to all folders beside it."""
