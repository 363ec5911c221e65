"""Tables as messages: the sinks, their options, and batches that one commit makes visible."""
