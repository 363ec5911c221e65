"""Routes of users, their permissions, and the objects that they own."""
