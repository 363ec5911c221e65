"""The attributes of a queue: durable, exclusive, auto-delete and arguments.

A declare sets the attributes, and a redeclare compares them.
"""

from __future__ import annotations

from typing import final

from leveret.broker.attributes.arguments import Arguments


@final
class QueueAttributes:
    """The attributes of one queue, apart from its name."""

    def __init__(
        self,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments: Arguments = {} if arguments is None else arguments
        if self.arguments.get("x-queue-type") == "":
            # As in RabbitMQ 4.3, an empty type means no type, and the vhost's default applies.
            self.arguments = {k: v for k, v in self.arguments.items() if k != "x-queue-type"}
