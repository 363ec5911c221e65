"""The base of every AMQP method.

A method is its fields and can write itself; it does nothing else.  The classes are generated
(`methods/`), one for each method of `spec.py`.

A field that names an exchange or a queue is a `Name`: reading a method cleans it.  Who makes a
method to send it has it written as it is.

Invariant: two methods are equal when they are of one class and their fields are; a table's order
does not count.
"""

from __future__ import annotations

from typing import ClassVar

from leveret.wire.buffer import BytesWriter


class Method:
    """One method: `CLASS_ID` and `METHOD_ID` name it to machines, `NAME` to people.

    `REPLIES` names the methods that answer it (none: it is asynchronous).  `FROM_CLIENT` and
    `FROM_SERVER` tell who may send it: one from the wrong side is a COMMAND_INVALID (503).
    """

    CLASS_ID: ClassVar[int] = 0
    METHOD_ID: ClassVar[int] = 0
    NAME: ClassVar[str] = ""
    HAS_CONTENT: ClassVar[bool] = False
    FROM_CLIENT: ClassVar[bool] = False
    FROM_SERVER: ClassVar[bool] = False
    REPLIES: ClassVar[tuple[str, ...]] = ()
    FIELDS: ClassVar[tuple[str, ...]] = ()
    #: Fields that hold a password or a token: a log shows their size only.
    SECRETS: ClassVar[tuple[str, ...]] = ()

    def write(self, w: BytesWriter) -> None:
        """Write class id, method id and arguments.

        Raises: ValueError for a field that cannot be written; then `w` may hold a part of it.
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
