"""A large body that is written to the journal while it arrives, so that no group is large.

A group is written and synced as a whole, and nobody's confirm can overtake it.  So the body of a
large message precedes its message in the journal: its parts are records of their own, in the groups
that are written meanwhile.  The record of the message refers to them.

If the body is not complete, or no record can refer to it, the parts are useless, and a last record
says so.  A reference is possible only if the journal did not begin a new generation since the first
part, because a checkpoint removes the files of older ones.  Otherwise the message is recorded with
its body, as any other message.

Invariant: at most one record refers to a body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.limits import BODY_APART_BYTES
from leveret.wire.buffer import BytesWriter

if TYPE_CHECKING:
    from leveret.store.journal.journal import Journal


@final
class BodyAhead:
    """The body of one message.

    `number` identifies it, and is 0 until a part is appended.  `body` is set while the journal may
    refer to it, and `referred` once a record does.
    """

    def __init__(self, journal: Journal, part_bytes: i64 = BODY_APART_BYTES) -> None:
        """Smaller pieces than `part_bytes` are gathered."""
        self.number: i64 = 0
        self.body = b""
        self.referred = False
        self._journal: Final = journal
        self._rolls: Final[i64] = journal.rolls
        self._part_bytes: Final[i64] = part_bytes
        #: The bytes appended, and those that are too few for a record.
        self._appended: i64 = 0
        self._gathered = BytesWriter()
        journal.bodies_open += 1

    def write(self, piece: bytes) -> None:
        """Append the next piece, or gather it if it is small."""
        gathered = self._gathered
        if len(gathered) == 0 and len(piece) >= self._part_bytes:
            self._append(piece)
            return
        gathered.write(piece)
        if len(gathered) >= self._part_bytes:
            self._append_gathered()

    def complete(self, body: bytes) -> None:
        """Append the rest, so that the next record of a message with `body` refers to the parts."""
        self._append_gathered()
        if self._is_current() and self._appended == len(body):
            self.body = body
            self._journal.ahead = self

    def end(self) -> None:
        """Release the body, and drop its parts if no record refers to them; call this once."""
        journal = self._journal
        journal.bodies_open -= 1
        self.body = b""
        if journal.ahead is self:
            journal.ahead = None
        if self.number > 0 and not self.referred:
            journal.body_part(self.number, 0, b"")

    def _append_gathered(self) -> None:
        if len(self._gathered) > 0:
            piece = self._gathered.getvalue()
            self._gathered = BytesWriter()
            self._append(piece)

    def _append(self, piece: bytes) -> None:
        """Append a part, unless the journal has begun a new generation since the first one."""
        if not self._is_current():
            return
        if self.number == 0:
            self.number = self._journal.new_body()
        self._journal.body_part(self.number, self._appended, piece)
        self._appended += len(piece)

    def _is_current(self) -> bool:
        return self._rolls == self._journal.rolls
