"""Routes of users, what they may do, and what they own."""
