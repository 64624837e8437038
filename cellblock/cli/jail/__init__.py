# SPDX-License-Identifier: Apache-2.0
"""The targets of `build.py jail`."""
