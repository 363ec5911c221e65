"""The composition root: creates the parts of a broker, and starts and stops them in order."""
