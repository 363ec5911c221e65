"""What arguments, properties and headers mean: values without a state of their own."""
