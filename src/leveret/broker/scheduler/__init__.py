"""Whose turn it is and for how long: the only place that knows costs, slices and rounds."""
