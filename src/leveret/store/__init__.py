"""What survives a crash: journal, chunks, state snapshot, recovery."""
