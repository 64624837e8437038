# SPDX-License-Identifier: Apache-2.0
"""Debs on this machine: fetched once by SHA-256, shared by all builds, handed out as an apt repository."""
