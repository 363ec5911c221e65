"""The base class of all AMQP methods.

A method has fields and can write itself.  The subclasses in `methods/` are generated, one for each
method of `spec.py`.

A field that names an exchange or a queue is a `Name`, which is cleaned on reading and unchanged on
writing.

Invariant: two methods are equal if their class and fields are equal; the order of table entries is
ignored.
"""

from __future__ import annotations

from typing import ClassVar

from leveret.wire.buffer import BytesWriter


class Method:
    """One method: `CLASS_ID` and `METHOD_ID` are its numbers, `NAME` is its readable name.

    `REPLIES` contains the names of the methods that answer it; it is empty for an asynchronous
    method.  `FROM_CLIENT` and `FROM_SERVER` define the sides that may send it.  A method from the
    wrong side is a COMMAND_INVALID (503).
    """

    CLASS_ID: ClassVar[int] = 0
    METHOD_ID: ClassVar[int] = 0
    NAME: ClassVar[str] = ""
    HAS_CONTENT: ClassVar[bool] = False
    FROM_CLIENT: ClassVar[bool] = False
    FROM_SERVER: ClassVar[bool] = False
    REPLIES: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()
    #: Fields with a password or a token, of which logs show only the size.
    SECRETS: ClassVar[tuple[str, ...]] = ()

    def write(self, w: BytesWriter) -> None:
        """Write class id, method id and arguments.

        Raises: ValueError for an invalid field; `w` may then contain a part of the method.
        """
        raise RuntimeError(f"{self.NAME} cannot write itself to {w!r}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Method) or self.NAME != other.NAME:
            return False
        return all(getattr(self, name) == getattr(other, name) for name in self.FIELDS)

    def __hash__(self) -> int:
        return hash(self.NAME)

    def __repr__(self) -> str:
        shown = []
        for name in self.FIELDS:
            value = getattr(self, name)
            hidden = name in self.SECRETS
            shown.append(f"{name}=<{len(value)} bytes>" if hidden else f"{name}={value!r}")
        return f"{self.NAME}({', '.join(shown)})"


def payload(method: Method) -> bytes:
    """Return the payload of the frame of `method`.

    Raises: ValueError as `Method.write`.
    """
    w = BytesWriter()
    method.write(w)
    return w.getvalue()
