"""The jobs for dead letters: analyse them, and publish them again."""
