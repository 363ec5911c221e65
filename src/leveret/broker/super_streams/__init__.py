"""Super streams, which have several partitions, each of which is a stream."""
