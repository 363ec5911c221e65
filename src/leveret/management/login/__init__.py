"""How who asks over TCP says who he is: Basic credentials, a form, and the session of a browser."""
