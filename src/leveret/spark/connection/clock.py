"""The clock of a broker, by which its messages and events are timed."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime

from leveret.errors import AmqpError
from leveret.spark.connection.http_link import HttpLink, NoHttp
from leveret.spark.options.read import Options
from leveret.spark.transports.base import Interrupted


def clock_ms(options: Options) -> int | None:
    """Return the time of the broker of a read, in milliseconds; None for a data directory.

    The broker tells it over HTTP, in whole seconds.  Where only AMQP answers, it is this machine's.
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
        # What hinders the read itself is told by the read.
        return time.time_ns() // 1_000_000
    finally:
        link.close()
