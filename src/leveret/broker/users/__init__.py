"""Users, their permissions, and the access that a connection has by them."""
