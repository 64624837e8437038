# SPDX-License-Identifier: Apache-2.0
"""Looks up what this machine has for containers, and keeps records of its clusters on disk."""
