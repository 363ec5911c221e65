"""Reading of an offset range, with retries and a check for missing messages.

Only this module decides what counts as data loss, as in Spark's Kafka source.  With
`failOnDataLoss`, missing messages are an error; without it they are logged and skipped.  An
unreachable broker is not data loss, but an error if it stays unreachable for longer than
`retryTimeoutMs`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pyarrow as pa

from leveret.errors import NotFound
from leveret.spark.connection.retries import REAL_PAUSE, ConnectionRetries, Pause
from leveret.spark.errors import SourceError
from leveret.spark.options.read import Options
from leveret.spark.stream.planner import OffsetRange
from leveret.spark.transport import Interrupted, Redeclared, Transport

log = logging.getLogger("leveret.spark")


class DataLossError(SourceError, RuntimeError):
    """Messages to be read are missing."""


def report_data_loss(options: Options, stream: str, what: str) -> None:
    """Report missing messages.  Raises: DataLossError with `failOnDataLoss`."""
    text = f"stream {stream!r}: {what}"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. Messages were removed by retention or damaged on disk, the stream was "
            "deleted and declared again, or the options name offsets that it does not have. To "
            "continue without these messages, set failOnDataLoss to false."
        )
    log.warning("%s; failOnDataLoss is false, so reading continues", text)


def read_range(
    transport: Transport,
    options: Options,
    whole: OffsetRange,
    pause: Pause = REAL_PAUSE,
) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a range in order, each offset once.

    Raises: DataLossError; Interrupted if the broker cannot be reached; NotFound (404).
    """
    position = whole.start
    retries = ConnectionRetries(options, f"stream {whole.stream!r}", pause)

    def check_gap(came: int) -> None:
        if came < position:
            raise AssertionError("a transport yields each offset at most once and in order")
        if came > position and transport.is_loss(position):
            what = f"the messages {position} to {came - 1} are missing"
            report_data_loss(options, whole.stream, what)

    while position < whole.end:
        try:
            for piece in transport.read(position, whole.end, whole.stream_id):
                check_gap(piece.start)
                position = piece.end
                retries.succeeded()
                yield piece.batch
            check_gap(whole.end)
            position = whole.end
        except Interrupted as error:
            retries.failed(error)
        except Redeclared as error:
            what = f"{error}, and the messages {position} to {whole.end - 1} are missing"
            report_data_loss(options, whole.stream, what)
            return
        except NotFound as error:
            if options.fail_on_data_loss:
                raise
            report_data_loss(options, whole.stream, str(error))
            return
