# SPDX-License-Identifier: Apache-2.0
"""Gives a cluster that runs new secrets in place of its old ones."""
