"""Writing what lives on from the older journal to chunks and a snapshot."""
