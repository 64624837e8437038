# SPDX-License-Identifier: Apache-2.0
"""What builds keep below CELLBLOCK_CACHE: records, images and working folders.

It knows what each of them takes, what goes first when room is needed, and what the disk has damaged.
"""
