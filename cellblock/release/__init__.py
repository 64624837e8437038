"""Built images before others have them: found where they lie, audited, attested, signed."""
