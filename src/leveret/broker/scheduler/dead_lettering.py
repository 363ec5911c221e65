"""The messages that wait to be dead-lettered, in the order in which they left their queues.

They wait until the deliveries of the batch are done, or for later rounds if there are too many.
`DeadMessage` implements the dead-lettering itself.

Invariant: `next` returns a message only once.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.scheduler.effects import DeadMessage


@final
class WaitingLetters:
    """A list that is read from the front and extended at the end."""

    def __init__(self) -> None:
        self._added: list[DeadMessage] = []
        #: The list being read, from index `_done` on.
        self._begun: list[DeadMessage] = []
        self._done: i64 = 0

    def add(self, letter: DeadMessage) -> None:
        """Have a message dead-lettered after all waiting ones."""
        self._added.append(letter)

    def any(self) -> bool:
        """Return whether messages wait."""
        return len(self._added) > 0 or len(self._begun) > 0

    def count(self) -> i64:
        """Return how many messages wait."""
        return len(self._added) + len(self._begun) - self._done

    def next(self) -> DeadMessage | None:
        """Remove and return the next message; None if no message waits."""
        if not self._begun:
            self._begun = self._added
            self._added = []
            if not self._begun:
                return None
        letter = self._begun[self._done]
        self._done += 1
        if self._done == len(self._begun):
            self._begun = []
            self._done = 0
        return letter

    def put_aside(self) -> list[DeadMessage]:
        """Remove and return the added messages, to separate them from later ones."""
        before = self._added
        self._added = []
        return before

    def put_back(self, before: list[DeadMessage]) -> list[DeadMessage]:
        """Return the messages added since `before` was put aside, and let `before` wait again."""
        own = self._added
        self._added = before
        return own
