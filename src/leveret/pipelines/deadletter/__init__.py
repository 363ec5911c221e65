"""Dead letters: why messages died, and some of them published again."""
