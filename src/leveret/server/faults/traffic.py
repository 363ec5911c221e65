"""What is to go wrong between a broker and its clients.

Whoever runs the broker says it here, in the broker's loop; `listener` does it.  Each fault counts
over all connections, in the order in which their input comes.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import HARD_ERRORS, SOFT_ERRORS, AmqpError, error_for
from leveret.wire.methods import ids as method_ids

#: The ids of all methods by their names as the specification writes them.
METHODS: Final[dict[str, int]] = {
    "{}.{}".format(*name.lower().split("_", 1)).replace("_", "-"): value
    for name, value in vars(method_ids).items()
    if name.isupper() and isinstance(value, int) and value > 0xFFFF
}


class Refusal:
    """What the next methods of a kind are answered with, and how many of them are left.

    Raises: ValueError: AMQP has no such method, or no such reply code.
    """

    def __init__(self, method: str, times: int, code: int, text: str) -> None:
        ids = METHODS.get(method)
        if ids is None:
            raise ValueError(f"AMQP 0-9-1 has no method {method!r}")
        # Only a channel can be closed by a soft error.
        soft = not method.startswith("connection.") and code in SOFT_ERRORS
        if not soft and code not in HARD_ERRORS:
            raise ValueError(f"no reply code with which a broker could refuse {method}: {code}")
        self.ids: Final = ids
        self.left = times
        self._code = code
        self._text = text
        self._soft = soft

    def error(self) -> AmqpError:
        """Return the error that such a method is answered with."""
        ids = self.ids
        return error_for(self._code, self._text, self._soft, ids >> 16, ids & 0xFFFF)


class Traffic:
    """The faults that are asked for; nothing goes wrong before."""

    def __init__(self) -> None:
        #: How much later what clients send arrives.
        self.delay_seconds = 0.0
        #: Publishes to be answered by a basic.nack.
        self.nacks_left = 0
        #: Connections to be reset before they say a word.
        self.resets_left = 0
        self._refusals: dict[int, Refusal] = {}

    @property
    def looks_at_methods(self) -> bool:
        """Whether anything waits for a method to come."""
        return self.nacks_left > 0 or bool(self._refusals)

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the next methods of a kind, in place of what was asked for that kind before."""
        self._refusals.pop(refusal.ids, None)
        if refusal.left > 0:
            self._refusals[refusal.ids] = refusal

    def resets(self) -> bool:
        """Count a new connection; tell whether it is to be reset."""
        reset = self.resets_left > 0
        self.resets_left -= reset
        return reset

    def wants(self, ids: int) -> bool:
        """Tell whether methods of a kind are refused."""
        return ids in self._refusals

    def take_refusal(self, ids: int) -> AmqpError:
        """Count a method that is refused; return what it is answered with."""
        refusal = self._refusals[ids]
        refusal.left -= 1
        if refusal.left == 0:
            del self._refusals[ids]
        return refusal.error()

    def clear(self) -> None:
        """Let everything go right again."""
        self.delay_seconds = 0.0
        self.nacks_left = 0
        self.resets_left = 0
        self._refusals.clear()
