"""How many copies of one message dead-lettering makes by itself.

A message that a client published or rejected may become `DEAD_LETTER_COPIES_MAX` letters.  How many
are left to a copy stands in its address, over pages, restarts and delays; what makes copies of it
shares them out.

Invariant: all copies together, with those that are left to them, never are more than the limit.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.message import ALL_LETTERS

#: Why a copy is not made: the message has so many already; there is no memory for it.
COPIES: Final = "copies"
MEMORY: Final = "memory"


def shared(letters_left: i64, copies: i64) -> i64:
    """Return how many more copies each of `copies` may become, so that all keep within the limit.

    `letters_left` is what the message had of which they are made.
    """
    if letters_left == ALL_LETTERS or copies == 0:
        return letters_left
    return max(letters_left - copies, 0) // copies


@final
class LettersDropped:
    """Copies that dead-lettering did not make because there would be too many, by the reason."""

    def __init__(self) -> None:
        #: The message had as many copies as dead-lettering may make of one.
        self.copies: i64 = 0
        #: There was no memory for more copies than one of a letter.
        self.memory: i64 = 0
        #: The vhost and the queue that the last of them died in.
        self.vhost = ""
        self.queue = ""

    def total(self) -> i64:
        """Return how many there were since the start."""
        return self.copies + self.memory
