"""Accounts for memory other than messages, such as definitions and the state of connections.

`Memory` counts messages.  Everything else that clients can make grow is booked here, in bytes, when
it is created, and released when it is removed:

- *definitions*: vhosts, queues, exchanges, bindings, policies and parameters, with their names,
  arguments and indexes, and users with their permissions.  Each vhost has its own `Account`.
  Definitions cannot be moved to disk, so they may use only a share of the memory; a declaration
  beyond it is refused;
- *connections*: their channels, consumers and cached routes, unacked deliveries, input that is not
  parsed yet and output that the peer has not read; and state kept for clients that lost their
  connection;
- *marks*: state that queues and streams keep in addition to their messages: publishing ids,
  deduplication keys, stored consumer offsets.  They have a share of the memory, beyond which a new
  mark is refused or replaces the oldest one;
- *requests*: the bodies of HTTP requests, from before they are read until they are answered, and
  their responses.

The sizes of objects are measured (`tests/hostile/test_memory.py` measures them again), and rounded
up from those of the compiled build.

Invariants: when an owner is removed, everything it booked is released, to the byte; an account that
has ended ignores further bookings.
"""

from __future__ import annotations

import sys
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed

#: Memory of definitions and connections that does not count for the memory alarm, so that with a
#: low memory limit only messages count.  A few hundred queues or fifty clients use as much.
ACCOUNTS_FREE_BYTES: Final = 1024 * 1024


#: The sizes of the broker's objects in bytes, without names and arguments.  In the compiled and the
#: plain build, `tracemalloc` counts: a vhost 7,300 and 9,500, a queue 2,550 and 4,550, an exchange
#: 600 and 700, a binding 300 and 320, a policy 600 and 700 plus the states of its pattern.
VHOST_BYTES: Final = 9_000
QUEUE_BYTES: Final = 2_800
#: The additional bytes of a staging queue: its entry in its sink's table of queues, which may have
#: no other entry, and its entries in the lists of messages that pass through the sink's queues.
STAGED_BYTES: Final = 700
#: A sink's record, without its names.
SINK_BYTES: Final = 600
EXCHANGE_BYTES: Final = 850
BINDING_BYTES: Final = 420
POLICY_BYTES: Final = 700

#: A user with all limits, and permissions without the states of their patterns, each with its table
#: entry.
USER_BYTES: Final = 900
PERMISSION_BYTES: Final = 900
TOPIC_PERMISSION_BYTES: Final = 500

#: A connection takes 2,950 and 4,650 before it is open, plus some for the objects of the shell; a
#: publish in a transaction 200 and 270, a cached route 590 and 700.
CONNECTION_BYTES: Final = 5_500
CHANNEL_BYTES: Final = 1_700
CONSUMER_BYTES: Final = 450
UNACKED_BYTES: Final = 140
TX_PUBLISH_BYTES: Final = 250
ROUTE_BYTES: Final = 700

#: The same for HareMQ connections, without names and ids: a channel, the additional bytes of a
#: consumer compared with an AMQP one, and an unacked delivery with its entries in two tables.
HARE_CHANNEL_BYTES: Final = 350
HARE_CONSUMER_BYTES: Final = 150
HARE_UNACKED_BYTES: Final = 250

#: The bytes of the names in a HareMQ connection's replies if its protobuf package is not HareMQ's.
HARE_PACKAGE_BYTES: Final = 1_000

#: The bytes of a decimal or a timestamp in a table that `sys.getsizeof` does not report.
_VALUE_BYTES: Final = 64


class Accounts:
    """The totals of all accounts."""

    def __init__(self) -> None:
        self.definition_bytes: i64 = 0
        #: The limit for definitions; a negative number means no limit, here and below.
        self.definition_bytes_max: i64 = -1
        self.connection_bytes: i64 = 0
        #: The limit for connections.
        self.connection_bytes_max: i64 = -1
        self.mark_bytes: i64 = 0
        #: The limit for marks.
        self.mark_bytes_max: i64 = -1

        #: The memory of HTTP requests that are being read or answered.
        self.request_bytes: i64 = 0
        #: The limit for all requests together.
        self.request_bytes_max: i64 = -1

    def total(self) -> i64:
        """Return the total of all accounts."""
        return self.definition_bytes + self.connection_bytes + self.mark_bytes + self.request_bytes

    def counted(self) -> i64:
        """Return the total beyond `ACCOUNTS_FREE_BYTES`, which counts for the memory alarm."""
        return max(self.total() - ACCOUNTS_FREE_BYTES, 0)

    def is_crowded(self) -> bool:
        """Return whether connections exceed their limit."""
        return 0 <= self.connection_bytes_max < self.connection_bytes

    def check_definition(self, size: i64) -> None:
        """Check that definitions may use `size` more bytes.

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
    """The memory of one vhost's definitions."""

    def __init__(self, accounts: Accounts) -> None:
        self.bytes: i64 = 0
        #: The vhost's own limit; a negative number means no limit.
        self.bytes_max: i64 = -1
        self._accounts: Final = accounts
        self._ended = False

    def check(self, vhost: str, size: i64) -> None:
        """Check that the definitions of vhost `vhost` may use `size` more bytes.

        Raises: PreconditionFailed (406).
        """
        self._accounts.check_definition(size)
        if 0 <= self.bytes_max < self.bytes + size:
            raise PreconditionFailed(
                f"the definitions of vhost '{vhost}' take {self.bytes} bytes of memory, this one "
                f"needs {size} more: the limit ({self.bytes_max}) is reached"
            )

    def book(self, size: i64) -> None:
        """Add `size` bytes, which may be negative."""
        if not self._ended:
            self.bytes += size
            self._accounts.definition_bytes += size

    def end(self) -> None:
        """Release everything, because the owner was removed."""
        self.book(-self.bytes)
        self._ended = True


@final
class MarkAccount:
    """The memory of the marks of one owner: a queue, a stream, or all sinks of a vhost."""

    def __init__(self, accounts: Accounts) -> None:
        self.bytes: i64 = 0
        self._accounts: Final = accounts

    def book(self, size: i64) -> None:
        """Add `size` bytes, which may be negative."""
        self.bytes += size
        self._accounts.mark_bytes += size

    def has_room(self) -> bool:
        """Return whether more marks may be added."""
        most = self._accounts.mark_bytes_max
        return most < 0 or self._accounts.mark_bytes < most

    def end(self) -> None:
        """Release everything, because the owner was removed."""
        self.book(-self.bytes)


@final
class ConnectionAccount:
    """The memory of one connection without messages; `bytes` is the total."""

    def __init__(self, accounts: Accounts) -> None:
        self.bytes: i64 = 0
        #: These are part of the total: unparsed input, unsent output, and state that grows with
        #: every message and is therefore counted only once a second.
        self.input_bytes: i64 = 0
        self.output_bytes: i64 = 0
        self._growing_bytes: i64 = 0
        self._accounts: Final = accounts
        self._ended = False
        self.book(CONNECTION_BYTES)

    def book(self, size: i64) -> None:
        """Add `size` bytes, which may be negative."""
        if not self._ended:
            self.bytes += size
            self._accounts.connection_bytes += size

    def hold_input(self, size: i64) -> None:
        """Set the bytes booked for unparsed input."""
        self.book(size - self.input_bytes)
        self.input_bytes = size

    def hold_output(self, size: i64) -> None:
        """Set the bytes booked for unsent output."""
        self.book(size - self.output_bytes)
        self.output_bytes = size

    def hold_growing(self, size: i64) -> None:
        """Set the bytes booked for state that grows with every message."""
        self.book(size - self._growing_bytes)
        self._growing_bytes = size

    def end(self) -> None:
        """Release everything, because the connection ended."""
        self.book(-self.bytes)
        self._ended = True


def table_bytes(table: dict[str, object]) -> i64:
    """Return the memory of a decoded table in bytes, including its contents.

    A table may take five times its size on the wire, because many small entries are many small
    objects.  Equal tables have equal sizes in one build, so a booking can be released by counting
    the table again.
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
