"""Super streams: one name for several partitions, each of which is a stream."""
