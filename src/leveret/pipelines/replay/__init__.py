"""Publishing recorded messages again."""
