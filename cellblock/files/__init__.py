"""Files: written whole, locked, hashed."""
