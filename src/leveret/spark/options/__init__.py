"""What users say to the data source, as text: read once, into frozen objects."""
