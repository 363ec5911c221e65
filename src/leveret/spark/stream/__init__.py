"""Batch and streaming reads of streams: finding them, planning offset ranges, and the readers."""
