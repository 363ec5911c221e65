"""The limits of a virtual host: its connections, the memory of its definitions, and its quotas.

They are stored in the journal record of the vhost (`metadata.py`).

Invariants: all stored limits have been checked; a change is journaled.

Source: behaviour 73 (limits of a vhost).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import NUMBER_MAX, Arguments, is_int
from leveret.broker.quotas import MAX_QUEUES, QUOTAS
from leveret.errors import PreconditionFailed

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost

#: The limit for the memory of a vhost's definitions.
MAX_DEFINITION_BYTES: Final = "max-definition-bytes"

#: The limits of a vhost.
VHOST_LIMITS: Final = ("max-connections", MAX_DEFINITION_BYTES, *QUOTAS)


@final
class VhostLimits:
    """The limits of one vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost: Final = vhost
        #: The limits set by the operator (`VHOST_LIMITS`); negative: no limit.
        self.by_name: dict[str, int] = {}

    def set(self, limits: Arguments) -> None:
        """Replace the limits; a negative one means no limit.  Existing objects stay.

        Raises: PreconditionFailed (406) for an unknown limit, or a value that is not a number.
        """
        self._vhost.metadata.change({}, checked_limits(limits))

    def add(self, limits: Arguments) -> None:
        """Set limits and keep the others.

        Raises: PreconditionFailed (406) for an invalid limit; then no limit is set.
        """
        self.set({**self.by_name, **limits})

    def clear(self, name: str) -> None:
        """Remove one limit; do nothing if it is not set."""
        self.set({key: value for key, value in self.by_name.items() if key != name})

    def check_queues(self, name: str, count: i64) -> None:
        """Check that the vhost may have `count` queues, `name` among them.

        Raises: PreconditionFailed (406).
        """
        most: i64 = self.by_name.get(MAX_QUEUES, -1)
        if 0 <= most < count:
            raise PreconditionFailed(
                f"cannot declare queue '{name}': queue limit in vhost '{self._vhost.name}' "
                f"({most}) is reached"
            )

    def take(self, limits: dict[str, int]) -> None:
        """Apply checked limits that are already journaled."""
        self.by_name = limits
        self._vhost.account.bytes_max = limits.get(MAX_DEFINITION_BYTES, -1)
        self._vhost.use.limit(limits)


def checked_limits(limits: Arguments) -> dict[str, int]:
    """Return checked limits of a vhost.  Raises: PreconditionFailed (406) for invalid ones."""
    checked: dict[str, int] = {}
    for name, value in limits.items():
        if name not in VHOST_LIMITS:
            raise PreconditionFailed(f"Validation failed: Unrecognised term '{name}' in limits")
        if not is_int(value) or not isinstance(value, int) or abs(value) > NUMBER_MAX:
            said = f"'{value}'" if isinstance(value, str) else str(value)
            raise PreconditionFailed(
                f"Validation failed: {name} should be a number, actually was {said}"
            )
        checked[name] = value
    return checked
