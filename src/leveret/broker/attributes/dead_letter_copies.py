"""The limit for the copies of one message that dead-lettering makes.

A message that a client published or rejected may become `DEAD_LETTER_COPIES_MAX` dead letters.  A
copy has its remaining number in its address, over pages, restarts and delays; where a message goes
to several queues, its copies divide the number among them.

Invariant: all copies together, plus their remaining numbers, never exceed the limit.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.message import ALL_LETTERS

#: Why a copy is not made: the message already has too many; there is no memory for it.
COPIES: Final = "copies"
MEMORY: Final = "memory"


def shared(letters_left: i64, copies: i64) -> i64:
    """Return the remaining number for each of `copies`, so that all together keep the limit.

    `letters_left` is the remaining number of the message being copied.
    """
    if letters_left == ALL_LETTERS or copies == 0:
        return letters_left
    return max(letters_left - copies, 0) // copies


@final
class LettersDropped:
    """Copies that dead-lettering did not make because of a limit, by the reason."""

    def __init__(self) -> None:
        #: The message already had the maximum of copies.
        self.copies: i64 = 0
        #: There was no memory for more than one copy of a dead letter.
        self.memory: i64 = 0
        #: The vhost and the queue in which the last of them died.
        self.vhost = ""
        self.queue = ""

    def total(self) -> i64:
        """Return their number since the start."""
        return self.copies + self.memory
