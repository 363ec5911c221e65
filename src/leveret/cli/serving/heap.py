"""The memory that the C library keeps for objects of more than 512 bytes, as a broker wants it.

glibc takes blocks of less than `MAPPED_BYTES` from one heap.  It shortens the heap when what lies
at its end is free, and all at once: an ack of 300 messages of 1.5 MB held everybody for 29 ms,
because the system takes back each page.  So it is told not to, and `Heap.give_back` shortens the
heap in pieces.

Where there is no glibc, nothing is changed.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import operator
import time
from typing import Final, final

#: Memory blocks from this size on are mapped by themselves; smaller ones are used again.
MAPPED_BYTES: Final = 8 * 1024 * 1024
#: How much of the heap's end is given back at once: it takes about a millisecond.
PIECE_BYTES: Final = 2 * MAPPED_BYTES
#: How much of the heap's end stays for what is needed next.
KEPT_BYTES: Final = 2 * MAPPED_BYTES

#: What `mallopt` calls its parameters (malloc.h), and their values unless one sets them.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_NEVER: Final = -1
_TOP_PAD_BYTES: Final = 128 * 1024
#: The most that the heap can be told to keep of its end, because `mallopt` takes an int; and what
#: is taken of it where more may be free.
_KEPT_BYTES_MAX: Final = 1 << 30
_FILLER_BYTES: Final = 1 << 29
#: No look takes so long, unless it gives a piece back.
_LOOK_SECONDS_MAX: Final = 0.0002
#: glibc looks at the end of the heap when it frees a block of 64 KiB or more.
_LOOK_BYTES: Final = 128 * 1024


@final
class Heap:
    """The heap of a process that is a broker.

    Raises: AttributeError, OSError where the C library is not glibc.
    """

    def __init__(self) -> None:
        # They keep the interpreter's lock.
        library = ctypes.PyDLL(None)
        self._mallopt: Final = library.mallopt
        self._malloc: Final = library.malloc
        self._free: Final = library.free
        self._sbrk: Final = library.sbrk
        self._malloc.argtypes = [ctypes.c_size_t]
        self._malloc.restype = ctypes.c_void_p
        self._free.argtypes = [ctypes.c_void_p]
        self._free.restype = None
        self._sbrk.argtypes = [ctypes.c_ssize_t]
        self._sbrk.restype = ctypes.c_void_p
        # By itself glibc begins to keep larger ones after the first: 19 MiB for the hash of each
        # thread that verified a password.
        self._mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        self._mallopt(_M_TRIM_THRESHOLD, _NEVER)
        self._begin: Final = self._end()

    def give_back(self) -> bool:
        """Give a piece of the heap's end back to the system; return whether there may be more.

        How much of its end is free is not known, so the heap is told to keep ever less of it,
        beginning with more than there can be: the first time that it is shortened, it is by
        `PIECE_BYTES` at most.  A look takes about 2 us.
        """
        end = self._end()
        fillers: list[int] = []
        others_ran = False
        kept = self._free_at_most(end, fillers)
        looked = time.perf_counter()
        while kept > KEPT_BYTES and self._end() == end:
            kept = max(kept - PIECE_BYTES, KEPT_BYTES)
            before, looked = looked, time.perf_counter()
            if looked - before > _LOOK_SECONDS_MAX:
                # Another thread may have freed so much that all of this begins anew.
                others_ran = True
                break
            self._shorten(kept)
        for filler in fillers:
            self._free(filler)
        return others_ran or self._end() < end

    def _free_at_most(self, end: int, fillers: list[int]) -> int:
        """Return how much of the heap's end is free at most, and no more than can be kept.

        What is beyond that is taken meanwhile, by `fillers`; nobody writes to them, so they cost
        nothing.
        """
        most = end - self._begin
        while most > _KEPT_BYTES_MAX:
            filler = self._malloc(_FILLER_BYTES)
            if filler is None or filler > end:
                # There was not so much left at the end: it was mapped, above the heap, or refused.
                self._free(filler)
                most = _FILLER_BYTES
            else:
                fillers.append(filler)
                most = min(most, end - filler - _FILLER_BYTES)
        if fillers and most <= _FILLER_BYTES:
            # The last one may have taken what is to be given back.
            self._free(fillers.pop())
            most += _FILLER_BYTES
        return most

    def _shorten(self, kept: int) -> None:
        """Give back what is free at the end of the heap beyond `kept` bytes."""
        block = self._malloc(_LOOK_BYTES)
        calls = (
            (self._mallopt, _M_TOP_PAD, kept),
            (self._mallopt, _M_TRIM_THRESHOLD, KEPT_BYTES),
            (self._free, block),
            (self._mallopt, _M_TRIM_THRESHOLD, _NEVER),
            (self._mallopt, _M_TOP_PAD, _TOP_PAD_BYTES),
        )
        # Python runs other threads between two calls of its own, and these would have the heap grow
        # by `kept`, or be shortened at once; `starmap` makes all calls in one.
        collections.deque(itertools.starmap(operator.call, calls), maxlen=0)

    def _end(self) -> int:
        return self._sbrk(0) or 0


def make_heap() -> Heap | None:
    """Take over the heap of this process, which holds little yet; None where that cannot be."""
    try:
        return Heap()
    except (AttributeError, OSError):
        return None
