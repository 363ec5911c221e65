"""The limit on the copies that dead-lettering makes of one message.

A message that a client published or rejected may become `DEAD_LETTER_COPIES_MAX` dead letters.  The
address of a copy contains the number of further copies it may become, which survives pages,
restarts and delays.  When a message goes to several queues, the copies divide the number among
themselves.

Invariant: all copies together, plus their remaining numbers, never exceed the limit.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.message import ALL_LETTERS

#: The reasons not to make a copy: the message already has too many, or memory is short.
COPIES: Final = "copies"
MEMORY: Final = "memory"


def shared(letters_left: i64, copies: i64) -> i64:
    """Return the remaining number for each of `copies`, so that together they keep the limit.

    `letters_left` is the remaining number of the copied message.
    """
    if letters_left == ALL_LETTERS or copies == 0:
        return letters_left
    return max(letters_left - copies, 0) // copies


@final
class LettersDropped:
    """The number of copies that dead-lettering did not make, by reason."""

    def __init__(self) -> None:
        #: The message already had the maximum number of copies.
        self.copies: i64 = 0
        #: There was no memory for more than one copy of a dead letter.
        self.memory: i64 = 0
        #: The vhost and the queue of the last of these dead letters.
        self.vhost = ""
        self.queue = ""

    def total(self) -> i64:
        """Return the number since startup."""
        return self.copies + self.memory
