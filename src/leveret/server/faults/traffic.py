"""The faults to inject between a broker and its clients.

The program that runs the broker requests faults here, in the broker's event loop, and `listener`
applies them.  Faults are counted over all connections, in the order of their input.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import HARD_ERRORS, SOFT_ERRORS, AmqpError, error_for
from leveret.wire.methods import ids as method_ids

#: The ids of all methods, by their names in the specification.
METHODS: Final[dict[str, int]] = {
    "{}.{}".format(*name.lower().split("_", 1)).replace("_", "-"): value
    for name, value in vars(method_ids).items()
    if name.isupper() and isinstance(value, int) and value > 0xFFFF
}


class Refusal:
    """The error for the next methods of a kind, and the number of such methods to refuse.

    Raises: ValueError if AMQP has no such method, or no such reply code.
    """

    def __init__(self, method: str, times: int, code: int, text: str) -> None:
        ids = METHODS.get(method)
        if ids is None:
            raise ValueError(f"AMQP 0-9-1 has no method {method!r}")
        # A soft error can only close a channel.
        soft = not method.startswith("connection.") and code in SOFT_ERRORS
        if not soft and code not in HARD_ERRORS:
            raise ValueError(f"a broker cannot refuse {method} with reply code {code}")
        self.ids: Final = ids
        self.left = times
        self._code = code
        self._text = text
        self._soft = soft

    def error(self) -> AmqpError:
        """Return the error for one refused method."""
        ids = self.ids
        return error_for(self._code, self._text, self._soft, ids >> 16, ids & 0xFFFF)


class InjectedFaults:
    """The requested faults; initially none."""

    def __init__(self) -> None:
        #: The delay of input from clients.
        self.delay_seconds = 0.0
        #: The number of publishes to answer with basic.nack.
        self.nacks_left = 0
        #: The number of connections to reset before the broker sends anything.
        self.resets_left = 0
        self._refusals: dict[int, Refusal] = {}

    @property
    def looks_at_methods(self) -> bool:
        """Whether any requested fault depends on methods."""
        return self.nacks_left > 0 or bool(self._refusals)

    def refuse(self, refusal: Refusal) -> None:
        """Refuse the next methods of a kind, replacing an earlier refusal of that kind."""
        self._refusals.pop(refusal.ids, None)
        if refusal.left > 0:
            self._refusals[refusal.ids] = refusal

    def resets(self) -> bool:
        """Count a new connection; return whether to reset it."""
        reset = self.resets_left > 0
        self.resets_left -= reset
        return reset

    def wants(self, ids: int) -> bool:
        """Return whether to refuse methods of a kind."""
        return ids in self._refusals

    def take_refusal(self, ids: int) -> AmqpError:
        """Count a refused method; return its error."""
        refusal = self._refusals[ids]
        refusal.left -= 1
        if refusal.left == 0:
            del self._refusals[ids]
        return refusal.error()

    def clear(self) -> None:
        """End all faults."""
        self.delay_seconds = 0.0
        self.nacks_left = 0
        self.resets_left = 0
        self._refusals.clear()
