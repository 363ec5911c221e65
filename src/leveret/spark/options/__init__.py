"""The users' options of the data source, as text, parsed once into frozen objects."""
