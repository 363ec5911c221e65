"""`leveret man`: the manual pages, made of the commands themselves, so that they are current."""
