"""The `Target` that takes messages, the `Source` that delivers them, and the `Queue` with both."""
