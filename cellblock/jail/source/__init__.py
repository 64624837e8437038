"""Where the files of a jail come from: images, OCI layouts, tars, directories, and reading them once."""
