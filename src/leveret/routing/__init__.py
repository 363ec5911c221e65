"""Pure matchers of keys and headers, shared by the broker and by the Spark routing job."""
