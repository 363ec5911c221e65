"""What a client and a Leveret broker tell each other about publishes whose confirms went lost.

A client that recovers names itself by a *publish session*: the entry `leveret-session` of its
client properties, 32 hexadecimal digits that it keeps over all its connections.  Each channel that
it opens has a *key*, a number that only grows, in the reserved string of channel.open; behind a
colon comes the key that the same channel of the application had on the lost connection:

    channel.open     "12"          a new channel
    channel.open     "15:12"       the channel that was 12 goes on as 15

channel.open-ok then says in its own reserved string what the broker did with the publishes that
came on 12 in confirm mode, or nothing where it does not know:

    channel.open-ok  "1043"                  it has handled the publishes 1 to 1043
    channel.open-ok  "1043 40 n51-53 r60-60" the same; it does not know about those up to 40, it
                                             refused 51 to 53 by basic.nack, and 60 was returned

Publishes are numbered as their confirms are: from 1 on, since confirm.select.  Other brokers have
empty strings there, and ignore what they get.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

#: The client property that holds the session.
SESSION_PROPERTY: Final = "leveret-session"

_SESSION_DIGITS: Final = 32
_KEY_DIGITS_MAX: Final = 18

#: What became of publishes that were not taken: a basic.nack, or a basic.return.
NACKED: Final = 1
RETURNED: Final = 2

#: The first and the last publish of a run that was not taken, and which of the two it was.
Gap = tuple[int, int, int]

_LETTERS: Final = {NACKED: "n", RETURNED: "r"}


@final
class PublishMarks:
    """What became of the publishes 1 to `through` of a channel.

    Of those up to `floor` nothing is known any more.  All others were taken, except `gaps`, which
    ascend and do not overlap.
    """

    def __init__(self, through: i64, floor: i64, gaps: list[Gap]) -> None:
        self.through: Final[i64] = through
        self.floor: Final[i64] = floor
        self.gaps: Final = gaps


def read_session(value: object) -> bytes:
    """Return the session that a client property names, or nothing for what is none."""
    if not isinstance(value, (str, bytes)) or len(value) != _SESSION_DIGITS:
        return b""
    try:
        text = value if isinstance(value, str) else value.decode("ascii")
        # Only digits: `fromhex` would pass over spaces.
        session = bytes.fromhex(text)
    except ValueError:
        return b""
    return session if len(session) * 2 == _SESSION_DIGITS else b""


def channel_key(key: int, before: int) -> str:
    """Return the string of channel.open; `before` is 0 for a new channel."""
    return f"{key}:{before}" if before else str(key)


def read_channel_key(text: str) -> tuple[int, int]:
    """Return the key of a channel and the one it had before; 0 for none, or for what is none."""
    if not text:
        return 0, 0
    key, _, before = text.partition(":")
    return _number(key), _number(before)


def _number(text: str) -> int:
    """Return a number of digits only, or 0."""
    if 0 < len(text) <= _KEY_DIGITS_MAX and text.isascii() and text.isdecimal():
        return int(text)
    return 0


def encode_marks(marks: PublishMarks, size_max: int) -> bytes:
    """Return marks in at most about `size_max` bytes: where that is little, the oldest go."""
    words: list[str] = []
    size = 48
    floor = int(marks.floor)
    for first, last, kind in reversed(marks.gaps):
        word = f"{_LETTERS.get(kind, 'r')}{first}-{last}"
        size += len(word) + 1
        if size > size_max:
            floor = max(floor, last)
            break
        words.append(word)
    words.append(str(floor))
    words.append(str(int(marks.through)))
    words.reverse()
    return " ".join(words).encode()


def read_marks(data: bytes) -> PublishMarks | None:
    """Return the marks in a channel.open-ok; None where it has none, or something else."""
    words = data.split(b" ")
    numbers = words[:2] if len(words) > 1 else [data, b"0"]
    if not all(0 < len(word) <= _KEY_DIGITS_MAX and word.isdigit() for word in numbers):
        return None
    gaps: list[Gap] = []
    for word in words[2:]:
        first, _, last = word[1:].partition(b"-")
        if word[:1] not in {b"n", b"r"} or not (first.isdigit() and last.isdigit()):
            return None
        gaps.append((int(first), int(last), NACKED if word[:1] == b"n" else RETURNED))
    return PublishMarks(int(numbers[0]), int(numbers[1]), gaps)
