"""What a broker does now: `leveret status` for once, `leveret top` again and again."""
