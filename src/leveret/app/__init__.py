"""The composition root: builds every part of a broker, and starts and stops them in order."""
