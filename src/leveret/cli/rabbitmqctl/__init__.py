"""`leveret rabbitmqctl`: the commands of rabbitmqctl and rabbitmq-diagnostics, for scripts.

Changes are made by the commands of `leveret ctl`; lists and checks print the same as RabbitMQ's
tools.
"""
