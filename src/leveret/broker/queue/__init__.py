"""What every queue has: its settings and counters, its consumers, and the publishers it knows."""
