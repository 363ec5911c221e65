"""Tools that read data directories without a broker: survey, dump, and salvage."""
