# SPDX-License-Identifier: Apache-2.0
"""Carries out an upgrade plan on a volume, so that a crash leaves a tree that can be finished."""
