"""The routes of the HTTP API, with one module for each concept, named by its AMQP word."""
