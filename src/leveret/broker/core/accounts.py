"""The account of memory that is not messages: definitions, and what connections hold.

`Memory` counts messages.  Whatever else a client can make grow is booked here, in bytes, when
it is made, and booked out when it goes:

- *definitions*: vhosts, queues, exchanges, bindings, policies and parameters, with their names,
  arguments and indexes, and users with what they may do.  Each vhost has an `Account` of its own.
  Definitions cannot be moved to the disk, so they may take a share of the memory only; a
  declaration beyond it is refused.
- *connections*: their channels, consumers and remembered routes, deliveries that wait for their
  ack, input that is not parsed and output that the peer does not read; and what is kept for clients
  whose connection was lost;
- *marks*: what queues and streams remember beside their messages: the numbers of publishers, the
  keys of deduplication, the stored offsets of consumers.  They have a share of the memory: beyond
  it a new one is refused, or takes the place of the oldest;
- *requests*: the bodies of HTTP requests, from before they are read until they are answered, and
  the memory that their answers take.

The sizes of objects are measured (`tests/hostile/test_memory.py` measures them again), and rounded
up to what the plain build takes where the compiled one takes less.

Invariants: what an owner has booked is booked out when it ends, to the byte; an account that has
ended takes no more bookings.
"""

from __future__ import annotations

import sys
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import ACCOUNTS_FREE_BYTES

#: Objects of the broker in bytes, without names and arguments.  Compiled and plain builds take, as
#: `tracemalloc` counts: a vhost 7,300 and 9,500, a queue 2,550 and 4,550, an exchange 600 and 700,
#: a binding 300 and 320, a policy 600 and 700 beside its
#: pattern's states.
VHOST_BYTES: Final = 9_000
QUEUE_BYTES: Final = 2_800
#: What a staging queue takes more: its place among those of its sink, which it may have for itself,
#: and in the lists of what goes through them.
STAGED_BYTES: Final = 700
#: What is remembered of a sink, without its names.
SINK_BYTES: Final = 600
EXCHANGE_BYTES: Final = 850
BINDING_BYTES: Final = 420
POLICY_BYTES: Final = 700

#: A user with all limits, and a permission, each with its place in a table; a permission without
#: the states of its patterns.
USER_BYTES: Final = 900
PERMISSION_BYTES: Final = 900
TOPIC_PERMISSION_BYTES: Final = 500

#: A connection takes 2,950 and 4,650 before it is open, and some more of its shell; a publish that
#: waits for its commit 200 and 270, a route that is remembered 590 and 700.
CONNECTION_BYTES: Final = 5_500
CHANNEL_BYTES: Final = 1_700
CONSUMER_BYTES: Final = 450
UNACKED_BYTES: Final = 140
TX_PUBLISH_BYTES: Final = 250
ROUTE_BYTES: Final = 700

#: The same of HareMQ's connections, without names and ids: a channel, what a consumer takes more
#: than one of AMQP, and a delivery that waits for its ack, with its places in two tables.
HARE_CHANNEL_BYTES: Final = 350
HARE_CONSUMER_BYTES: Final = 150
HARE_UNACKED_BYTES: Final = 250

#: The names of a HareMQ connection's answers where its package is not HareMQ's own.
HARE_PACKAGE_BYTES: Final = 1_000

#: What the object of a decimal or a timestamp takes in a table takes beside what
#: `sys.getsizeof` tells of it.
_VALUE_BYTES: Final = 64


class Accounts:
    """What all accounts hold together."""

    def __init__(self) -> None:
        self.definition_bytes: i64 = 0
        #: The most that definitions may take; below 0 there is no limit.
        self.definition_bytes_max: i64 = -1
        self.connection_bytes: i64 = 0
        #: The most that connections may take; below 0 there is no limit.
        self.connection_bytes_max: i64 = -1
        self.mark_bytes: i64 = 0
        #: The most that marks may take; below 0 there is no limit.
        self.mark_bytes_max: i64 = -1

        #: The memory of HTTP requests that are being read or answered.
        self.request_bytes: i64 = 0
        #: The most that they may take together; below 0 there is no limit.
        self.request_bytes_max: i64 = -1

    def total(self) -> i64:
        """Return what is booked in all."""
        return self.definition_bytes + self.connection_bytes + self.mark_bytes + self.request_bytes

    def counted(self) -> i64:
        """Return what of it counts with the messages: what any small broker holds does not."""
        return max(self.total() - ACCOUNTS_FREE_BYTES, 0)

    def is_crowded(self) -> bool:
        """Return whether connections take more than they may."""
        return 0 <= self.connection_bytes_max < self.connection_bytes

    def check_definition(self, size: i64) -> None:
        """Check that definitions may take `size` bytes more.

        Raises: PreconditionFailed (406).
        """
        most = self.definition_bytes_max
        if 0 <= most < self.definition_bytes + size:
            raise PreconditionFailed(
                f"definitions take {self.definition_bytes} bytes of memory, this one needs {size} "
                f"more, and they may take {most}: delete some, or have the operator raise "
                "definition_bytes_max"
            )


@final
class Account:
    """What the definitions of one vhost hold."""

    def __init__(self, accounts: Accounts) -> None:
        self.bytes: i64 = 0
        #: The most that it may hold; below 0 there is no limit of its own.
        self.bytes_max: i64 = -1
        self._accounts: Final = accounts
        self._ended = False

    def check(self, vhost: str, size: i64) -> None:
        """Check that the definitions of the vhost of that name may take `size` bytes more.

        Raises: PreconditionFailed (406).
        """
        self._accounts.check_definition(size)
        if 0 <= self.bytes_max < self.bytes + size:
            raise PreconditionFailed(
                f"the definitions of vhost '{vhost}' take {self.bytes} bytes of memory, this one "
                f"needs {size} more: the limit ({self.bytes_max}) is reached"
            )

    def book(self, size: i64) -> None:
        """Book `size` bytes; a negative size books out."""
        if not self._ended:
            self.bytes += size
            self._accounts.definition_bytes += size

    def end(self) -> None:
        """Book out everything: the owner has gone."""
        self.book(-self.bytes)
        self._ended = True


@final
class MarkAccount:
    """What one queue, or a stream, or a vhost of its sinks, remembers beside messages."""

    def __init__(self, accounts: Accounts) -> None:
        self.bytes: i64 = 0
        self._accounts: Final = accounts

    def book(self, size: i64) -> None:
        """Book `size` bytes; a negative size books out."""
        self.bytes += size
        self._accounts.mark_bytes += size

    def has_room(self) -> bool:
        """Return whether there is room for more."""
        most = self._accounts.mark_bytes_max
        return most < 0 or self._accounts.mark_bytes < most

    def end(self) -> None:
        """Book out everything: it is forgotten."""
        self.book(-self.bytes)


@final
class ConnectionAccount:
    """What one connection holds beside messages; `bytes` is all of it."""

    def __init__(self, accounts: Accounts) -> None:
        self.bytes: i64 = 0
        #: Of this, input that is not parsed, output that the transport has not sent, and what grows
        #: with every message and is therefore counted only once a second.
        self.input_bytes: i64 = 0
        self.output_bytes: i64 = 0
        self._growing_bytes: i64 = 0
        self._accounts: Final = accounts
        self._ended = False
        self.book(CONNECTION_BYTES)

    def book(self, size: i64) -> None:
        """Book `size` bytes; a negative size books out."""
        if not self._ended:
            self.bytes += size
            self._accounts.connection_bytes += size

    def hold_input(self, size: i64) -> None:
        """Book the memory of input in place of what was booked before."""
        self.book(size - self.input_bytes)
        self.input_bytes = size

    def hold_output(self, size: i64) -> None:
        """Book output in place of what was booked before."""
        self.book(size - self.output_bytes)
        self.output_bytes = size

    def hold_growing(self, size: i64) -> None:
        """Book what grows with every message in place of what was booked before."""
        self.book(size - self._growing_bytes)
        self._growing_bytes = size

    def end(self) -> None:
        """Book out everything: the connection is gone."""
        self.book(-self.bytes)
        self._ended = True


def table_bytes(table: dict[str, object]) -> i64:
    """Return the bytes that a decoded table takes with all that is in it.

    That may be five times what it had on the wire, as many small entries are many small objects.
    Equal tables of one build have equal sizes, so that what was counted for a table can be taken
    back by counting it again.
    """
    return _bytes_of(table) if table else 0


def _bytes_of(value: object) -> i64:
    size: i64 = sys.getsizeof(value)
    if isinstance(value, (str, bytes, bool, int, float)) or value is None:
        return size
    if isinstance(value, dict):
        for key, inner in value.items():
            size += i64(sys.getsizeof(key)) + _bytes_of(inner)
    elif isinstance(value, list):
        for inner in value:
            size += _bytes_of(inner)
    else:
        size += _VALUE_BYTES
    return size
