"""Routes of users, logins and permissions, and the transfer of owned objects."""
