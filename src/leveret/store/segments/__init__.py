"""Segment files: references to chunks, spilled chunks, and the use of the files' space."""
