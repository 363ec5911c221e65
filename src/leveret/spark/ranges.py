"""A range of offsets, read whole: what came is checked, and what is missing is answered for.

Here alone is decided about data loss, as in Spark's Kafka source: with `failOnDataLoss` missing
messages are an error, without it they are logged and passed over.  A broker that cannot be reached
is neither: it is an error after `numRetries` attempts in a row.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

import pyarrow as pa

from leveret.spark.options import Options
from leveret.spark.retries import Retries
from leveret.spark.transports.base import Interrupted, Transport

log = logging.getLogger("leveret.spark")


class DataLossError(RuntimeError):
    """Messages that a read was to yield are not in the stream any more."""


def report_data_loss(options: Options, what: str) -> None:
    """Answer for messages that are missing.  Raises: DataLossError with `failOnDataLoss`."""
    text = f"stream {options.stream!r}: {what}"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. They were removed by retention or damaged on disk, or the stream was deleted "
            "and made again. To go on without them, set failOnDataLoss to false."
        )
    log.warning("%s; failOnDataLoss is false, so reading goes on", text)


def read_range(
    transport: Transport,
    options: Options,
    start: int,
    end: int,
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range, each offset once and in order.

    Raises: DataLossError; Interrupted when the broker cannot be reached; NotFound (404).
    """
    position = start
    retries = Retries(options, wait)
    while position < end:
        try:
            for piece in transport.read(position, end):
                _check_gap(transport, options, position, piece.start)
                position = piece.end
                retries.succeeded()
                yield piece.batch
            _check_gap(transport, options, position, end)
            position = end
        except Interrupted as error:
            retries.failed(error)


def _check_gap(transport: Transport, options: Options, expected: int, came: int) -> None:
    """Compare the offset that came with the one that was to come.  Raises: DataLossError."""
    if came < expected:
        raise AssertionError("a transport yields each offset at most once and in order")
    if came > expected and transport.is_loss(expected):
        report_data_loss(options, f"the messages {expected} to {came - 1} are missing")
