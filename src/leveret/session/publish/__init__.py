"""What a publish goes through between its bytes and its queues."""
