# SPDX-License-Identifier: Apache-2.0
"""Images as the Open Container Initiative stores them: blobs, manifests, layouts, registries."""
