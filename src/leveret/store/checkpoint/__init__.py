"""Checkpoints: live data of older journal files is written to chunks and a snapshot."""
