"""The meaning of arguments, headers and patterns: values without a state of their own."""
