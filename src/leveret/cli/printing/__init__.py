"""The output of commands: text, rows and messages, for people and for programs."""
