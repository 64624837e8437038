# SPDX-License-Identifier: Apache-2.0
"""Merges the old image, the new image and the users' tree into the plan of an upgrade or rollback."""
