"""The choice of the fastest transport: bulk for Leveret, AMQP for other brokers.

The choice is made on first use.  If no HTTP listener of Leveret is known or responds (a firewall
may allow only AMQP), AMQP is used.  After `SILENT_SECONDS` HTTP is tried again, because the broker
may have restarted with a listener.

Invariant: the choice does not affect the result, because all transports yield the same rows.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql.types import StructType

from leveret.client import Parameters
from leveret.spark.connection.http_link import NoHttp
from leveret.spark.options.read import Options
from leveret.spark.transport import Bounds, Interrupted, Piece, QueryReport, Tail, Transport
from leveret.spark.transports.amqp import AmqpTransport
from leveret.spark.transports.bulk import BulkTransport

log = logging.getLogger("leveret.spark")

#: The time after which a broker's HTTP listener that did not respond is tried again, and for which
#: a transport uses AMQP before it tries HTTP again.
SILENT_SECONDS: Final = 60.0

#: The time until which a broker is not tried again at an address (None: the one it reports).
Silence = dict[tuple[Parameters, str | None], float]
_silence: Silence = {}


class AutoTransport(Transport):
    """A transport that delegates to another one."""

    def __init__(
        self,
        options: Options,
        stream: str,
        schema: StructType,
        silence: Silence = _silence,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._silence = silence
        self._options = options
        self._stream = stream
        self._schema = schema
        self._now = now
        self._transport: Transport | None = None
        self._report: QueryReport | None = None
        #: The time at which to choose again.
        self._until = math.inf

    def chosen(self) -> Transport:
        """Return the transport, choosing it if necessary.

        Raises: Interrupted; NotFound (404); AccessRefused (403).
        """
        if self._now() >= self._until:
            self.close()
        if self._transport is None:
            self._transport = chosen = self._choose()
            is_bulk = isinstance(chosen, BulkTransport)
            self._until = math.inf if is_bulk else self._now() + SILENT_SECONDS
            if self._report is not None:
                chosen.report(self._report)
        return self._transport

    def _choose(self) -> Transport:
        place = self._options.parameters(), self._options.http_uri
        amqp = AmqpTransport(self._options, self._stream, self._schema)
        if self._now() < self._silence.get(place, 0):
            return amqp
        bulk = BulkTransport(self._options, self._stream, self._schema)
        try:
            bulk.bounds()
        except NoHttp:
            bulk.close()
        except Interrupted as error:
            bulk.close()
            # If AMQP is unreachable too, raise instead of choosing.
            amqp.bounds()
            log.warning("stream %r: no bulk transport: %s", self._stream, error)
            self._silence[place] = self._now() + SILENT_SECONDS
        else:
            return bulk
        return amqp

    def report(self, report: QueryReport) -> None:
        """Report the query to the broker with each following request."""
        self._report = report
        if self._transport is not None:
            self._transport.report(report)

    def earliest(self) -> int:
        """Return the offset of the first message.  Raises: Interrupted; NotFound (404)."""
        return self.chosen().earliest()

    def tail(self) -> Tail:
        """Return the stream's end and its id.  Raises: Interrupted; NotFound (404)."""
        return self.chosen().tail()

    def bounds(self) -> Bounds:
        """Return both ends.  Raises: Interrupted; NotFound (404)."""
        return self.chosen().bounds()

    def read(self, start: int, end: int, stream_id: str | None = None) -> Iterator[Piece]:
        """Yield the stream's messages in a range.  Raises: Interrupted; NotFound; Redeclared."""
        yield from self.chosen().read(start, end, stream_id)

    def offset_at(self, timestamp_ms: int) -> int:
        """Return the first offset at or after a time.  Raises: Interrupted; NotFound (404)."""
        return self.chosen().offset_at(timestamp_ms)

    def end_at(self, timestamp_ms: int) -> int:
        """Return an offset after all messages before a time.  Raises: Interrupted; NotFound."""
        return self.chosen().end_at(timestamp_ms)

    def mean_bytes(self, start: int, end: int) -> float:
        """Return the mean body size of a range.  Raises: Interrupted; NotFound (404)."""
        return self.chosen().mean_bytes(start, end)

    def keeps_time(self) -> bool:
        """Return whether each message has its own time.  Raises: Interrupted."""
        return self.chosen().keeps_time()

    def is_loss(self, missing: int) -> bool:
        """Return whether a missing offset was a message's.  Raises: Interrupted; NotFound (404)."""
        # Called during a read, whose connection must stay open.
        return (self._transport or self.chosen()).is_loss(missing)

    def close(self) -> None:
        """Close the connection, and forget the choice."""
        transport, self._transport, self._until = self._transport, None, math.inf
        if transport is not None:
            transport.close()
