"""Images as the Open Container Initiative stores them: blobs, manifests, layouts, registries."""
