"""The transports by which Spark tasks read streams, one module each.

`amqp` works with every broker that has streams.  `bulk` works only with Leveret, and is ten times
as fast.  `auto` uses the fastest transport that the broker supports.  `files` reads a data
directory without a broker.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql.types import StructType

from leveret.spark.options.read import Options
from leveret.spark.transport import Transport

__all__ = ["Transport", "TransportOpener", "open_transport"]

#: A function that opens the transport of one stream.  It must be picklable.
TransportOpener = Callable[[Options, str, StructType], Transport]


def open_transport(options: Options, stream: str, schema: StructType) -> Transport:
    """Return the transport that the options name, which connects when it is first used.

    `schema` has columns of this source, even if the user requests Kafka's columns.
    """
    if options.directory is not None:
        from leveret.spark.transports.files import FilesTransport

        return FilesTransport(options, stream, schema)
    if options.transport == "amqp":
        from leveret.spark.transports.amqp import AmqpTransport

        return AmqpTransport(options, stream, schema)
    if options.transport == "bulk":
        from leveret.spark.transports.bulk import BulkTransport

        return BulkTransport(options, stream, schema)
    from leveret.spark.transports.auto import AutoTransport

    return AutoTransport(options, stream, schema)
