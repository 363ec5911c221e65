"""What a topology would do with traffic."""
