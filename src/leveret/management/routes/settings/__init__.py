"""Routes of definitions, parameters and policies."""
