"""`leveret config`: the settings of a broker, made from those of RabbitMQ."""
