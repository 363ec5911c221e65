"""The clock of a broker, which sets the timestamps of messages and events."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from leveret.errors import AmqpError
from leveret.spark.connection.http_link import HttpLink, NoHttp
from leveret.spark.options.read import Options
from leveret.spark.transport import Interrupted


def clock_ms(options: Options) -> int | None:
    """Return the broker's current time in milliseconds, or None for a data directory.

    The broker's HTTP listener reports whole seconds.  If there is none, use this machine's clock.
    """
    if options.directory is not None:
        return None
    link = HttpLink(options, options.stream or "")
    try:
        with link.ask("", {}) as answer:
            date = answer.getheader("Date", "")
            answer.read()
        return round(parsedate_to_datetime(date).timestamp() * 1000)
    except (Interrupted, NoHttp, AmqpError, ValueError):
        # The read itself reports the cause.
        return time.time_ns() // 1_000_000
    finally:
        link.close()
