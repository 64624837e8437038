# SPDX-License-Identifier: Apache-2.0
"""The command line: one module for each group of commands, which reads options and prints results.

The work itself is in the other folders of cellblock/.
"""
