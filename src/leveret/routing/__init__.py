"""Pure matchers of keys and headers, shared by the broker and the Spark routing job."""
