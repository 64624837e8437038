"""Carries out a plan on a volume, so that a crash at any moment leaves a tree that can be finished."""
