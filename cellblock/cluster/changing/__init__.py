# SPDX-License-Identifier: Apache-2.0
"""Changes what runs with the least harm to its jobs."""
