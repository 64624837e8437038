# SPDX-License-Identifier: Apache-2.0
"""Finds out what this machine runs, which processes it has, and whether kernel settings suit clusters."""
