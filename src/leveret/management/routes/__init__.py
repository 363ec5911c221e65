"""One file for each thing that the HTTP API shows, by its AMQP word."""
