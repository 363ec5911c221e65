"""A queue that stores and delivers nothing: the base of the tests' own queues."""

from __future__ import annotations

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.core import Core
from leveret.broker.queue.queue import Queue
from leveret.broker.queue.target import RECORDS_NONE, Target
from leveret.message import Message


class IdleTarget(Target):
    """A target that drops every message."""

    def publish(self, message: Message) -> int:
        return 0


class IdleQueue(Queue):
    """A queue that is always empty."""

    def __init__(
        self,
        core: Core,
        queue_id: int,
        name: str,
        attributes: QueueAttributes,
    ) -> None:
        super().__init__(core, queue_id, name, attributes)
        self.target = self.new_target()

    def new_target(self) -> Target:
        return IdleTarget(self.core, self.name, self.queue_id, RECORDS_NONE)

    @property
    def kind(self) -> str:
        return "idle"

    def dispatch(self, limit: int) -> bool:
        return False

    def ready_count(self) -> int:
        return 0

    def ready_bytes(self) -> int:
        return 0

    def purge(self) -> int:
        return 0

    def drop(self) -> None:
        """Do nothing: the queue is empty."""

    def next_number(self) -> int:
        return 1
