# SPDX-License-Identifier: Apache-2.0
"""What this machine is, and the settings of its kernel that clusters need."""
