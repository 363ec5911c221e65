"""Checkpoints, which write the live data of older journal files to chunks and a snapshot."""
