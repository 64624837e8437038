# SPDX-License-Identifier: Apache-2.0
"""The command line: one module per group of targets, no logic of its own."""
