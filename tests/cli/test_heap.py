"""The heap of the process that is a broker is given back to the system in pieces."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from leveret.cli.serving.heap import KEPT_BYTES, PIECE_BYTES

MIB = 1 << 20

#: Takes blocks from the heap's end, frees those behind the first ones, and prints how long the heap
#: is then, and after each piece that is given back.  In a process of its own: they come before all
#: other memory.
SCRIPT = """
import ctypes, gc, json, sys
from leveret.cli.serving.heap import make_heap
# A collection between two looks at the heap counts as work of others.
gc.disable()
heap = make_heap()
libc = ctypes.PyDLL(None)
libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
libc.free.argtypes, libc.free.restype = [ctypes.c_void_p], None
libc.sbrk.argtypes, libc.sbrk.restype = [ctypes.c_ssize_t], ctypes.c_void_p
count, size, kept = map(int, sys.argv[1:])
# These lists must not come to lie between the blocks.
ends, blocks = [0] * (count + 1), [0] * (count + kept)
# Python's own allocations must not lie behind a filler: every second of these blocks is free.
spare = [libc.malloc(4096) for _ in range(256)]
for number in range(0, 256, 2):
    libc.free(spare[number])
begin = libc.sbrk(0)
for number in range(count + kept):
    blocks[number] = libc.malloc(size)
begin += size * kept
for number in range(kept, count + kept):
    libc.free(blocks[number])
ends[0] = libc.sbrk(0) - begin
used = 1
while heap.give_back():
    ends[used] = libc.sbrk(0) - begin
    # It also goes on where others ran meanwhile, and nothing was given back.
    used += ends[used] < ends[used - 1]
print(json.dumps(ends[:used]))
"""


@pytest.fixture(autouse=True)
def _glibc() -> None:
    script = (
        "import sys; from leveret.cli.serving.heap import make_heap; sys.exit(make_heap() is None)"
    )
    if subprocess.run([sys.executable, "-c", script], check=False).returncode:
        pytest.skip("the C library is not glibc")


@pytest.mark.parametrize(
    ("count", "size", "kept"),
    [(300, 3 * MIB // 2, 0), (700, 7 * MIB, 0), (200, 7 * MIB, 90), (70, 7 * MIB, 300)],
)
def test_free_memory_is_given_back_in_pieces(count: int, size: int, kept: int) -> None:
    """Freed blocks stay; then the heap is shortened until little of its end is free.

    Nobody writes to the blocks: 5 GB of them take no memory.
    """
    words = [sys.executable, "-c", SCRIPT, str(count), str(size), str(kept)]
    run = subprocess.run(words, capture_output=True, check=True, text=True)
    ends = json.loads(run.stdout)
    # The first one may lie in what was free before.
    assert ends[0] >= (count - 1) * size
    assert ends[-1] <= KEPT_BYTES + 2 * MIB
    pieces = [before - after for before, after in itertools.pairwise(ends)]
    assert max(pieces) <= PIECE_BYTES + MIB
    assert min(pieces) > 0


def test_a_short_heap_stays() -> None:
    """What is needed next is not given back."""
    words = [sys.executable, "-c", SCRIPT, "4", str(MIB), "0"]
    run = subprocess.run(words, capture_output=True, check=True, text=True)
    assert len(json.loads(run.stdout)) == 1
