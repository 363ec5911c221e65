"""Help for the commands: on a terminal, as manual pages, and by completion in a shell."""
