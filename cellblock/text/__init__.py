# SPDX-License-Identifier: Apache-2.0
"""Formats text for people (amounts of bytes, lines of a terminal, file names), and reads times of RFC 3339.

Any module that prints or composes messages uses it.
"""
