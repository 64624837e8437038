# SPDX-License-Identifier: Apache-2.0
"""What can be said of an image to others: what is in it, how it came to be, that nothing in it is wrong."""
