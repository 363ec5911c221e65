"""`leveret rabbitmqctl`: what scripts call rabbitmqctl and rabbitmq-diagnostics for.

What changes a broker is what `leveret ctl` has; lists and checks print what RabbitMQ's tools print.
"""
