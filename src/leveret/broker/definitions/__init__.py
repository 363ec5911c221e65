"""Export and import of definitions in the format of RabbitMQ's definitions files."""
