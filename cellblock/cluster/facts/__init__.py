# SPDX-License-Identifier: Apache-2.0
"""What is known: of this machine, and of the clusters that it has."""
