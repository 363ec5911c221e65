"""The protocol by which a Leveret broker reports the outcome of publishes with lost confirms.

A recovering client identifies itself by a *publish session*: 32 hexadecimal digits in the client
property `leveret-session`, the same on all its connections.  Each channel sends a *key*, an
increasing number, in the reserved string of channel.open.  A colon and a second key follow if the
same channel of the application had that key on the lost connection:

    channel.open     "12"          a new channel
    channel.open     "15:12"       the channel with key 12 continues as 15

channel.open-ok then contains, in its reserved string, the outcome of the publishes in confirm mode
on the channel with key 12, or nothing if the outcome is unknown:

    channel.open-ok  "1043"                  publishes 1 to 1043 were accepted
    channel.open-ok  "1043 40 n51-53 r60-60" the same, but 1 to 40 are unknown, 51 to 53 were
                                             nacked, and 60 was returned

Publishes are numbered from 1 since confirm.select, like their confirms.  Other brokers send an
empty string, and ignore the client's string.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

#: The client property that contains the session.
SESSION_PROPERTY: Final = "leveret-session"

_SESSION_DIGITS: Final = 32
_KEY_DIGITS_MAX: Final = 18

#: The outcome of publishes that were not accepted: a basic.nack, or a basic.return.
NACKED: Final = 1
RETURNED: Final = 2

#: The first and the last publish of a run that was not accepted, and NACKED or RETURNED.
Gap = tuple[int, int, int]

_LETTERS: Final = {NACKED: "n", RETURNED: "r"}


@final
class PublishMarks:
    """The outcome of the publishes 1 to `through` of a channel.

    The outcome of publishes up to `floor` is unknown.  All others were accepted, except `gaps`,
    which are in ascending order and do not overlap.
    """

    def __init__(self, through: i64, floor: i64, gaps: list[Gap]) -> None:
        self.through: Final[i64] = through
        self.floor: Final[i64] = floor
        self.gaps: Final = gaps


def read_session(value: object) -> bytes:
    """Return the session in a client property, or b"" if it is invalid."""
    if not isinstance(value, (str, bytes)) or len(value) != _SESSION_DIGITS:
        return b""
    try:
        text = value if isinstance(value, str) else value.decode("ascii")
        # `fromhex` also accepts spaces, which the size check below refuses.
        session = bytes.fromhex(text)
    except ValueError:
        return b""
    return session if len(session) * 2 == _SESSION_DIGITS else b""


def channel_key(key: int, before: int) -> str:
    """Return the string of channel.open; `before` is 0 for a new channel."""
    return f"{key}:{before}" if before else str(key)


def read_channel_key(text: str) -> tuple[int, int]:
    """Return the key of a channel and its earlier key; 0 if absent or invalid."""
    if not text:
        return 0, 0
    key, _, before = text.partition(":")
    return _number(key), _number(before)


def _number(text: str) -> int:
    """Return the number in `text`, or 0 if it contains characters other than digits."""
    if 0 < len(text) <= _KEY_DIGITS_MAX and text.isascii() and text.isdecimal():
        return int(text)
    return 0


def encode_marks(marks: PublishMarks, size_max: int) -> bytes:
    """Encode marks in at most about `size_max` bytes; drop the oldest gaps if needed."""
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
    """Return the marks in a channel.open-ok, or None if they are absent or invalid."""
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
