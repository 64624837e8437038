"""Numbers and names of files as a person reads them."""
