# SPDX-License-Identifier: Apache-2.0
"""A Kubernetes for tests, made from Debian's source package."""
