"""`leveret man`: the manual pages, generated from the commands, so that they are always current."""
