# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan on a volume, so that a crash at any moment leaves a tree that can be finished."""
