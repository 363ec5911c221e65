"""Data directories read without a broker: surveyed, printed, and salvaged."""
