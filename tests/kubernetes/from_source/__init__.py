# SPDX-License-Identifier: Apache-2.0
"""Makes a Kubernetes for tests from Debian's source package."""
