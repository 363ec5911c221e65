"""`GET /api/streams/{vhost}/{name}/chunks`: a stream's messages as the chunks that they lie in.

Parameters of the query, all of them numbers:

    offset      where to begin (0 where nothing is said): the first chunk is the one that holds it,
                with what lies before it in there, or the next one where it is gone
    end         no chunk that begins at this offset or after it is sent
    wait_ms     how long to wait for a message at or after `offset`
    max_bytes   after so many bytes no further chunk is begun

The body is whole chunks (`leveret.chunk`) one after the other, as they lie on the disk; what is in
no file yet comes as a chunk that is made for the answer.  Headers tell, as of its beginning, which
stream of its name it is (`Leveret-Stream-Id`), where it begins (`Leveret-First-Offset`) and ends
(`Leveret-Next-Offset`), and up to which offset the answer goes (`Leveret-End-Offset`): a reader
asks on from there.  A chunk that is damaged, so that not even its header is true, is left out.

An answer is booked as one part of a chunk; it is refused (503) if requests have no room for that.

Invariants: only what is synced is sent; an answer holds one part of a chunk in memory, however slow
its reader is; an answer that cannot go on ends with its connection, never as if it were whole.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from leveret.broker.admin.stream_stats import StreamStats
from leveret.broker.stream.chunks import (
    StreamPart,
    end_of_parts,
    next_part,
    report_damage,
)
from leveret.broker.stream.stream import Stream, StreamWatcher
from leveret.chunk import ChunkDamaged
from leveret.errors import NotFound
from leveret.limits import (
    HTTP_CHUNKS_BYTES,
    HTTP_CHUNKS_BYTES_MAX,
    HTTP_WAIT_MS_MAX,
    HTTP_WRITE_BYTES_MAX,
)
from leveret.management.chunk_source import ChunkSource
from leveret.management.gate import book
from leveret.management.requests.slices import next_slice
from leveret.management.routes.shared import CHUNKS, number_of_query
from leveret.management.routes.streams.streams import found_stream
from leveret.store.segments.segments import ChunkRef, check_chunk_head

CONTENT_TYPE: Final = "application/vnd.leveret.chunks"

_OFFSETS_MAX: Final = 2**62


@dataclass(frozen=True)
class _Wish:
    """What a request asks for."""

    offset: int
    end: int
    wait_ms: int
    bytes_max: int


class _Moved(StreamWatcher):
    """Tells who awaits it that more of a stream may be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def moved(self) -> None:
        """Let who waits go on."""
        self.event.set()


async def chunks(request: web.Request) -> web.StreamResponse:
    """Answer with chunks."""
    stream = found_stream(request)
    wish = _Wish(
        number_of_query(request, "offset", 0, _OFFSETS_MAX),
        number_of_query(request, "end", _OFFSETS_MAX, _OFFSETS_MAX),
        number_of_query(request, "wait_ms", 0, HTTP_WAIT_MS_MAX),
        number_of_query(request, "max_bytes", HTTP_CHUNKS_BYTES, HTTP_CHUNKS_BYTES_MAX),
    )
    if wish.wait_ms and wish.offset < wish.end:
        await _wait(stream, wish)
        # All requests that waited for the message continue at once.
        await next_slice()
    if stream.deleted:
        raise NotFound(f"the stream '{stream.name}' was deleted")
    # The part in memory while the client reads it; a request that waits for messages holds none.
    book(request, HTTP_WRITE_BYTES_MAX)
    end = int(end_of_parts(stream, wish.offset, wish.end, wish.bytes_max))
    stats = StreamStats(stream)
    headers = {
        "Content-Type": CONTENT_TYPE,
        "Leveret-Stream-Id": stats.stream_id,
        "Leveret-First-Offset": str(stats.first_offset),
        "Leveret-Next-Offset": str(stats.next_offset),
        "Leveret-End-Offset": str(end),
    }
    response = web.StreamResponse(headers=headers)
    await response.prepare(request)
    try:
        await _send(request.app[CHUNKS], response, stream, wish.offset, end)
    except Exception:
        # What was sent cannot be taken back, and must not look whole.
        if request.transport is not None:
            request.transport.abort()
        raise
    await response.write_eof()
    return response


async def _wait(stream: Stream, wish: _Wish) -> None:
    """Wait until a message at or after the offset is seen, the stream is gone, or time is up."""
    loop = asyncio.get_running_loop()
    until = loop.time() + wish.wait_ms / 1000
    while stream.visible_end <= wish.offset and not stream.deleted:
        watcher = _Moved()
        stream.watch(watcher)
        try:
            async with asyncio.timeout_at(until):
                await watcher.event.wait()
        except TimeoutError:
            return
        finally:
            stream.unwatch(watcher)


async def _send(
    source: ChunkSource, response: web.StreamResponse, stream: Stream, start: int, end: int
) -> None:
    """Send the chunks from one offset up to another, but for those that retention takes meanwhile.

    Raises: ConnectionError: the stream was deleted meanwhile.
    """
    position = start
    while position < end:
        if stream.deleted:
            raise ConnectionResetError("the stream was deleted")
        part = next_part(stream, position)
        if part is None or part.first >= end:
            return
        ref = part.ref
        if ref is None:
            for at in range(0, len(part.data), HTTP_WRITE_BYTES_MAX):
                await response.write(part.data[at : at + HTTP_WRITE_BYTES_MAX])
            # To make it took a while, and a reader that is fast waits for nothing.
            await next_slice()
        elif not await _send_stored(source, response, stream, part, ref):
            continue
        position = int(part.end)


async def _send_stored(
    source: ChunkSource,
    response: web.StreamResponse,
    stream: Stream,
    part: StreamPart,
    ref: ChunkRef,
) -> bool:
    """Send a chunk as it lies, or pass it by as damaged; return False if it moved meanwhile.

    Raises: ConnectionError: it ends early.
    """
    size = int(ref.size)
    data = await source.read(int(stream.queue_id), ref, 0, min(size, HTTP_WRITE_BYTES_MAX))
    await next_slice()
    try:
        check_chunk_head(data, ref, stream.queue_id)
    except ChunkDamaged as damage:
        return report_damage(stream, part, data, damage)
    await response.write(data)
    at = len(data)
    while at < size:
        data = await source.read(
            int(stream.queue_id), ref, at, min(size - at, HTTP_WRITE_BYTES_MAX)
        )
        if not data:
            raise ConnectionResetError("a chunk ends early")
        await next_slice()
        await response.write(data)
        at += len(data)
    return True


ROUTES: Final = (web.get("/api/streams/{vhost}/{name}/chunks", chunks, allow_head=False),)
