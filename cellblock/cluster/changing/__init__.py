# SPDX-License-Identifier: Apache-2.0
"""Changes a running cluster into what its cluster file says, with the least harm to jobs."""
