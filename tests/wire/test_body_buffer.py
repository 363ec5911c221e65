"""A body that comes in pieces is the same at every cut, and takes little memory beside its own."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc

import pytest

from leveret.wire.content.body_buffer import PART_BYTES, BodyBuffer

PIECE = 131_064


def filled(size: int, cut: int) -> bytes:
    """Return a body in which every place is unlike its neighbours, from pieces of `cut` bytes."""
    body = random.Random(size).randbytes(size)
    buffer = BodyBuffer(size)
    for at in range(0, size, cut):
        buffer.write(body[at : at + cut])
    assert buffer.taken() == size
    whole = buffer.body()
    assert whole == body
    return whole


@pytest.mark.parametrize(
    "size",
    [0, 1, PIECE, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES, 5 * PART_BYTES + 7],
)
@pytest.mark.parametrize("cut", [4096, PIECE, PART_BYTES - 5, 2 * PART_BYTES + 3])
def test_a_body_is_what_came(size: int, cut: int) -> None:
    """Below, at and above the size from which on a body is put together from parts."""
    assert len(filled(int(size), int(cut))) == size


def test_pieces_of_any_size_make_the_body() -> None:
    """Cuts that nothing in the buffer expects."""
    draw = random.Random(7)
    for _ in range(20):
        size = draw.randrange(4 * int(PART_BYTES))
        body = draw.randbytes(size)
        buffer = BodyBuffer(size)
        at = 0
        while at < size:
            end = at + draw.choice([1, 1000, PIECE, draw.randrange(1, 1 + int(PART_BYTES))])
            buffer.write(body[at:end])
            at = end
        assert buffer.body() == body


def test_a_large_body_takes_its_memory_when_a_quarter_of_it_is_there() -> None:
    """Nothing is made for what may never come; what is made counts, and is a quarter more."""
    size = 4 * int(PART_BYTES)
    piece = bytes(PIECE)
    tracemalloc.start()
    try:
        buffer = BodyBuffer(size)
        come = 0
        while come < size:
            buffer.write(piece[: size - come])
            come = min(size, come + PIECE)
            assert buffer.taken() == (come if 4 * come < size else size)
            real = tracemalloc.get_traced_memory()[0]
            # A BytesIO has room for an eighth more.
            assert real <= int(buffer.taken()) * 5 // 4 + PART_BYTES + 2 * PIECE
        real = tracemalloc.get_traced_memory()[0]
        # The part of the first half from which the last bytes were moved.
        assert real <= size + 2 * PIECE + PART_BYTES * 9 // 8 + 65_536
        whole = buffer.body()
        assert len(whole) == size
        real = tracemalloc.get_traced_memory()[0]
        assert real <= size + 65_536
    finally:
        tracemalloc.stop()


SCRIPT = """
import resource
from leveret.errors import ResourceFault
from leveret.wire.content.body_buffer import BodyBuffer
buffer, piece = BodyBuffer(256 << 20), bytes(1 << 20)
with open("/proc/self/statm") as file:
    size = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (128 << 20), resource.RLIM_INFINITY))
try:
    for _ in range(64):
        buffer.write(piece)
except ResourceFault as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_a_body_that_the_system_has_no_memory_for_is_refused() -> None:
    words = [sys.executable, "-c", SCRIPT]
    run = subprocess.run(words, capture_output=True, check=True, text=True)
    assert "506 RESOURCE_ERROR - no memory left for a body of 268435456 bytes" in run.stdout
