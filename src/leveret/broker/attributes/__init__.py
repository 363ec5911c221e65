"""Reading and checking arguments, properties and headers, without any state."""
