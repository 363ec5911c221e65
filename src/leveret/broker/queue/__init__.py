"""What takes messages (`Target`), what gives them (`Source`), and the declared `Queue` of both."""
