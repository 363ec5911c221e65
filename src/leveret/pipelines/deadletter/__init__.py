"""Dead letters: why messages were dead-lettered, and publishing some of them again."""
