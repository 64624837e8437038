# SPDX-License-Identifier: Apache-2.0
"""Keeps debs on this machine: fetched once by SHA-256, shared by all builds, served as an apt repository."""
