# SPDX-License-Identifier: Apache-2.0
"""Keeps what builds leave below CELLBLOCK_CACHE: records, images and working folders.

It also measures how much disk they take, removes the oldest when room is needed, and finds damaged files.
"""
