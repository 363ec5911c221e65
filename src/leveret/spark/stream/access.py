"""How a read reaches its streams: the functions that list and open them, and its clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.spark.connection.retries import REAL_PAUSE, Pause
from leveret.spark.stream.finder import StreamFinder, find_streams
from leveret.spark.transports import TransportOpener, open_transport


@dataclass(frozen=True)
class StreamAccess:
    """Opens a stream, finds the streams that options select, and waits between retries."""

    open: TransportOpener = open_transport
    find: StreamFinder = find_streams
    pause: Pause = REAL_PAUSE


#: The access over the network.
STREAM_ACCESS: Final = StreamAccess()
