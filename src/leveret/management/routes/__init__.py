"""One file for each concept of the HTTP API, by its AMQP word."""
