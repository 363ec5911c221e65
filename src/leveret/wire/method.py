"""The base of every AMQP method.

A method has fields and can write itself; it does nothing else.  The classes are generated
(`methods/`), one for each method of `spec.py`.

A field that names an exchange or a queue is a `Name`: reading a method cleans it.  A method that
is created to be sent writes its name unchanged.

Invariant: two methods are equal if their class and their fields are; the order of a table is
ignored.
"""

from __future__ import annotations

from typing import ClassVar

from leveret.wire.buffer import BytesWriter


class Method:
    """One method: `CLASS_ID` and `METHOD_ID` are its numbers, `NAME` is its readable name.

    `REPLIES` are the names of the methods that answer it (none: it is asynchronous).
    `FROM_CLIENT` and `FROM_SERVER` say which side may send it: a method from the wrong side is a
    COMMAND_INVALID (503).
    """

    CLASS_ID: ClassVar[int] = 0
    METHOD_ID: ClassVar[int] = 0
    NAME: ClassVar[str] = ""
    HAS_CONTENT: ClassVar[bool] = False
    FROM_CLIENT: ClassVar[bool] = False
    FROM_SERVER: ClassVar[bool] = False
    REPLIES: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()
    #: Fields that contain a password or a token: a log shows only their size.
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
    """Return the payload of the method frame that carries `method`.

    Raises: ValueError as `Method.write`.
    """
    w = BytesWriter()
    method.write(w)
    return w.getvalue()
