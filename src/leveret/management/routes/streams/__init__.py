"""Routes of streams and super streams, their chunks, consumers and Spark queries."""
