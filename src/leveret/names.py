r"""Names: what one is once it came in, and which ones may be new.

The name of an exchange or a queue comes from a client as any text.  RabbitMQ strips its line ends,
and so do we: once, where the name comes in (the decoder of AMQP's methods, the HTTP API, the body
of a commit).  What is judged, looked up, logged and stored afterwards is a `Name`, which mypy keeps
apart from a text: whoever judged the one and used the other would let `sec\nret` through where
`secret` is refused.

To Python a `Name` is a `str`.  A text becomes one by `cleaned`; what was a name before (in a record
of the journal, of our own making) by `Name`.

Invariant: no name becomes the empty one by cleaning, because an empty one means something else: the
default exchange, the queue declared last, or one that the server is to name.
"""

from __future__ import annotations

from typing import Final, NewType

from leveret.errors import PreconditionFailed

#: The name of an exchange or a queue, without line ends.
Name = NewType("Name", str)

#: What no new name may hold, as first and last of each range: the controls of ASCII and of Latin-1,
#: the separators of lines and paragraphs, and what turns the direction of the text after it.  They
#: forge lines of logs and of terminals, and two names that differ by them look the same.
_REFUSED: Final = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0x2028, 0x2029),
    (0x202A, 0x202E),
    (0x2066, 0x2069),
)


#: What the name of a sink begins with that one save of a table makes for itself, and how many
#: characters follow, which are random.
SAVE_PREFIX: Final = "save-"
SAVE_CHARACTERS: Final = 16

#: The refusal of a name without a character besides line ends.
_NAMES_NOTHING: Final = "a name of line ends alone names nothing: line ends are stripped from names"


def cleaned(text: str) -> Name:
    """Return the name that a client means by `text`: without line ends (behaviour 41).

    Raises: PreconditionFailed (406) for line ends alone, which name nothing.
    """
    name = text.replace("\r", "").replace("\n", "")
    if text and not name:
        raise PreconditionFailed(_NAMES_NOTHING)
    return Name(name)


def cleaned_bytes(raw: bytes) -> bytes:
    """Return the encoded name that a client means by `raw`, as `cleaned` does.

    Raises: PreconditionFailed (406) for line ends alone, which name nothing.
    """
    name = raw.replace(b"\r", b"").replace(b"\n", b"")
    if raw and not name:
        raise PreconditionFailed(_NAMES_NOTHING)
    return name


def clean_argument(arguments: dict[str, object], key: str) -> None:
    """Clean the name of an exchange or a queue among arguments, if it is there.

    Raises: PreconditionFailed (406) for line ends alone.
    """
    value = arguments.get(key)
    if isinstance(value, str):
        arguments[key] = cleaned(value)


def check_new(name: str, what: str) -> None:
    """Refuse a name with a control character for a new `what`, which says what it is to name.

    What has such a name already keeps it: it is found, used, exported, imported and deleted by it.

    Raises: PreconditionFailed (406).
    """
    if name.isprintable():
        return
    for letter in name:
        code = ord(letter)
        for first, last in _REFUSED:
            if first <= code <= last:
                raise PreconditionFailed(
                    f"the name of a new {what} holds the control character U+{code:04X}: choose a "
                    "name without it"
                )


def is_save(name: str) -> bool:
    """Return whether a sink is that of one save of a table, which nobody repeats later."""
    return name.startswith(SAVE_PREFIX) and len(name) == len(SAVE_PREFIX) + SAVE_CHARACTERS


def is_plain(raw: bytes) -> bool:
    """Tell whether bytes are printable ASCII, so that `check_new` would take them."""
    for byte in raw:
        if byte < 0x20 or byte >= 0x7F:
            return False
    return True
