"""`GET /api/streams/{vhost}/{name}/chunks`: the messages of a stream, in chunks as stored on disk.

Parameters of the query, all of them numbers:

    offset      the first offset (default 0): the answer begins with the chunk that contains it,
                including the messages before it, or with the next chunk if that was deleted
    end         no chunk is sent that begins at this offset or after it
    wait_ms     how long to wait for a message at or after `offset`
    max_bytes   no further chunk is begun after this many bytes

The body is a sequence of whole chunks (`leveret.chunk`) as they are stored on disk.  Messages that
are not in a file yet are sent as a chunk made for the answer.  Headers contain the state at its
beginning: the id that distinguishes the stream from earlier ones of its name (`Leveret-Stream-Id`),
its first offset (`Leveret-First-Offset`) and next offset (`Leveret-Next-Offset`), and the offset
from which a reader continues after the answer (`Leveret-End-Offset`).  A chunk with a damaged
header is omitted.

An answer books the memory of one part of a chunk, and is refused (503) at the memory limit of
requests.

Invariants: only synced messages are sent; an answer has only one part of a chunk in memory, however
slow its reader is; an answer that cannot be completed closes its connection, so that it never looks
complete.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from leveret.broker.stats.streams import StreamStats
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
from leveret.management.api_route import ApiRoute, Schema
from leveret.management.chunk_source import ChunkSource
from leveret.management.gate import book
from leveret.management.requests.slices import next_slice
from leveret.management.rights import USER
from leveret.management.routes.shared import CHUNKS, number_of_query
from leveret.management.routes.streams.streams import found_stream, note_query
from leveret.store.segments.segments import ChunkRef, check_chunk_head, placed_chunk

CONTENT_TYPE: Final = "application/vnd.leveret.chunks"

_OFFSETS_MAX: Final = 2**62


@dataclass(frozen=True)
class _ChunksRequest:
    """The options of a request."""

    offset: int
    end: int
    wait_ms: int
    bytes_max: int


class _Moved(StreamWatcher):
    """Notifies a waiting request that a stream has more visible messages."""

    def __init__(self) -> None:
        super().__init__()
        self.event = asyncio.Event()

    def moved(self) -> None:
        """Wake the request."""
        self.event.set()


async def chunks(request: web.Request) -> web.StreamResponse:
    """Return the chunks of a stream from an offset on."""
    stream = found_stream(request)
    note_query(request, stream)
    wish = _ChunksRequest(
        number_of_query(request, "offset", 0, _OFFSETS_MAX),
        number_of_query(request, "end", _OFFSETS_MAX, _OFFSETS_MAX),
        number_of_query(request, "wait_ms", 0, HTTP_WAIT_MS_MAX),
        number_of_query(request, "max_bytes", HTTP_CHUNKS_BYTES, HTTP_CHUNKS_BYTES_MAX),
    )
    if wish.wait_ms and wish.offset < wish.end:
        await _wait(stream, wish)
        # Otherwise all requests that waited for the message would continue in one loop iteration.
        await next_slice()
    if stream.deleted:
        raise NotFound(f"the stream '{stream.name}' was deleted")
    # For the part that is being sent; a request that waits for messages needs no memory.
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
        # A partial answer has been sent, and must not look complete.
        if request.transport is not None:
            request.transport.abort()
        raise
    await response.write_eof()
    return response


async def _wait(stream: Stream, wish: _ChunksRequest) -> None:
    """Wait for a visible message at or after the offset, the deletion of the stream, or timeout."""
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
    """Send the chunks between two offsets; skip chunks that retention deletes during the answer.

    Raises: ConnectionError if the stream is deleted before the end.
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
            # Making the part takes time, and a write to a fast reader does not wait.
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
    """Send a chunk as stored, or skip it if it is damaged; return False if it has moved.

    Raises: ConnectionError if the chunk ends early.
    """
    size = int(ref.size)
    data = await source.read(int(stream.queue_id), ref, 0, min(size, HTTP_WRITE_BYTES_MAX))
    await next_slice()
    try:
        check_chunk_head(data, ref, stream.queue_id)
        data = placed_chunk(data, ref, stream.queue_id)
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


_CHUNKS: Final[Schema] = {"description": "Chunks.", "content": {"application/octet-stream": {}}}

ROUTES: Final = (
    ApiRoute("GET", "/api/streams/{vhost}/{name}/chunks", chunks, USER, answer=_CHUNKS, head=False),
)
