# SPDX-License-Identifier: Apache-2.0
"""The targets about images: what there is, building, locking, looking into them, publishing."""
