"""What arguments, headers and patterns mean: values without a state of their own."""
