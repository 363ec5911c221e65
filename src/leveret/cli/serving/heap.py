"""Tunes the heap of the C library, which holds objects of more than 512 bytes, for a broker.

glibc allocates blocks of less than `MAPPED_BYTES` from one heap.  When the end of the heap is free,
glibc trims all of it at once: an ack of 300 messages of 1.5 MB blocked the event loop for 29 ms,
because the system has to reclaim each page.  So automatic trimming is turned off, and
`Heap.give_back` trims the heap in pieces.

Without glibc, nothing is changed.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import operator
import time
from typing import Final, final

#: Memory blocks of this size or more are mapped separately; smaller ones are reused.
MAPPED_BYTES: Final = 8 * 1024 * 1024
#: The size of the pieces in which the heap is trimmed; each takes about a millisecond.
PIECE_BYTES: Final = 2 * MAPPED_BYTES
#: How much of the heap's free end is kept for new blocks.
KEPT_BYTES: Final = 2 * MAPPED_BYTES

#: The parameters of `mallopt` (malloc.h), and their default values.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_NEVER: Final = -1
_TOP_PAD_BYTES: Final = 128 * 1024
#: The maximum free end that the heap can be told to keep, because `mallopt` takes an int; and the
#: block allocated from it if more may be free.
_KEPT_BYTES_MAX: Final = 1 << 30
_FILLER_BYTES: Final = 1 << 29
#: The maximum duration of an attempt that trims nothing.
_LOOK_SECONDS_MAX: Final = 0.0002
#: glibc checks the end of the heap when it frees a block of 64 KiB or more.
_LOOK_BYTES: Final = 128 * 1024


@final
class Heap:
    """The heap of a broker's process.

    Raises: AttributeError, OSError if the C library is not glibc.
    """

    def __init__(self) -> None:
        # Calls through PyDLL keep the GIL.
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
        # By default glibc begins to keep larger blocks after the first one: 19 MiB for the hash of
        # each thread that verified a password.
        self._mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        self._mallopt(_M_TRIM_THRESHOLD, _NEVER)
        self._begin: Final = self._end()

    def give_back(self) -> bool:
        """Return a piece of the heap's end to the system; return whether there may be more.

        The size of the free end is unknown, so the heap is told to keep ever less of it, beginning
        with more than possible: the first time that it is trimmed, it is by at most `PIECE_BYTES`.
        An attempt takes about 2 us.
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
                # Another thread may have freed so much that the search must start again.
                others_ran = True
                break
            self._shorten(kept)
        for filler in fillers:
            self._free(filler)
        return others_ran or self._end() < end

    def _free_at_most(self, end: int, fillers: list[int]) -> int:
        """Return the maximum size of the heap's free end, at most the size that can be kept.

        `fillers` allocate the rest meanwhile; they are never written to, so they cost nothing.
        """
        most = end - self._begin
        while most > _KEPT_BYTES_MAX:
            filler = self._malloc(_FILLER_BYTES)
            if filler is None or filler > end:
                # The end had less free: the block was mapped above the heap, or refused.
                self._free(filler)
                most = _FILLER_BYTES
            else:
                fillers.append(filler)
                most = min(most, end - filler - _FILLER_BYTES)
        if fillers and most <= _FILLER_BYTES:
            # The last one may have taken the piece that is to be trimmed.
            self._free(fillers.pop())
            most += _FILLER_BYTES
        return most

    def _shorten(self, kept: int) -> None:
        """Trim the free end of the heap beyond `kept` bytes."""
        block = self._malloc(_LOOK_BYTES)
        calls = (
            (self._mallopt, _M_TOP_PAD, kept),
            (self._mallopt, _M_TRIM_THRESHOLD, KEPT_BYTES),
            (self._free, block),
            (self._mallopt, _M_TRIM_THRESHOLD, _NEVER),
            (self._mallopt, _M_TOP_PAD, _TOP_PAD_BYTES),
        )
        # Between two calls, Python may run other threads, and these would make the heap grow by
        # `kept`, or trim it at once; `starmap` makes all calls without a switch.
        collections.deque(itertools.starmap(operator.call, calls), maxlen=0)

    def _end(self) -> int:
        return self._sbrk(0) or 0


def make_heap() -> Heap | None:
    """Configure the heap of this process, which is still small; return None if impossible."""
    try:
        return Heap()
    except (AttributeError, OSError):
        return None
