"""The process that is a broker: how it is set up, watched over and ended."""
