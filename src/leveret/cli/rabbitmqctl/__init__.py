"""`leveret rabbitmqctl`: the commands of rabbitmqctl and rabbitmq-diagnostics, for scripts.

Commands that change something call those of `leveret ctl`.  Lists and checks print the same output
as RabbitMQ's tools.
"""
