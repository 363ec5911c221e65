"""What commands print: text, rows and messages, for people and for programs."""
