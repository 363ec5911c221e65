"""Tunes the heap of the C library, from which Python allocates objects of more than 512 bytes.

glibc allocates blocks of less than `MAPPED_BYTES` from one heap.  When the end of the heap is free,
glibc trims all of it at once, and the system has to reclaim each page: an ack of 300 messages of
1.5 MB blocked the event loop for 29 ms.  Therefore automatic trimming is turned off, and
`Heap.give_back` trims the heap in pieces.

Without glibc, nothing changes.
"""

from __future__ import annotations

import collections
import ctypes
import itertools
import operator
import time
from typing import Final, final

#: Blocks of at least this size are mapped separately; smaller ones are allocated from the heap.
MAPPED_BYTES: Final = 8 * 1024 * 1024
#: The size of the pieces in which the heap is trimmed; each takes about a millisecond.
PIECE_BYTES: Final = 2 * MAPPED_BYTES
#: The size of the heap's free end that is not trimmed, for new blocks.
KEPT_BYTES: Final = 2 * MAPPED_BYTES

#: The parameters of `mallopt` (malloc.h), and their default values.
_M_TRIM_THRESHOLD: Final = -1
_M_TOP_PAD: Final = -2
_M_MMAP_THRESHOLD: Final = -3
_NEVER: Final = -1
_TOP_PAD_BYTES: Final = 128 * 1024
#: The maximum free end that `mallopt`, which takes an int, can preserve; and the size of the
#: blocks that are allocated from a larger free end.
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
        # By default, glibc raises this threshold when a larger block is freed, and then retains
        # such blocks: 19 MiB for each thread that has verified a password.
        self._mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
        self._mallopt(_M_TRIM_THRESHOLD, _NEVER)
        self._begin: Final = self._end()

    def give_back(self) -> bool:
        """Return a piece of the heap's end to the system; return whether more may be free.

        The size of the free end is unknown.  Each attempt makes glibc preserve `PIECE_BYTES` less
        of it, beginning with more than can be free, so the first attempt that trims the heap trims
        at most `PIECE_BYTES`.  An attempt takes about 2 us.
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
                # Another thread may have freed memory meanwhile, so the search must start again.
                others_ran = True
                break
            self._shorten(kept)
        for filler in fillers:
            self._free(filler)
        return others_ran or self._end() < end

    def _free_at_most(self, end: int, fillers: list[int]) -> int:
        """Return the maximum size of the heap's free end, at most `_KEPT_BYTES_MAX`.

        The blocks in `fillers` occupy the rest of the free end until the caller frees them.  They
        are never written, so they use no memory.
        """
        most = end - self._begin
        while most > _KEPT_BYTES_MAX:
            filler = self._malloc(_FILLER_BYTES)
            if filler is None or filler > end:
                # The free end was smaller, so the block was mapped above the heap, or refused.
                self._free(filler)
                most = _FILLER_BYTES
            else:
                fillers.append(filler)
                most = min(most, end - filler - _FILLER_BYTES)
        if fillers and most <= _FILLER_BYTES:
            # The last filler may occupy the piece to be trimmed.
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
        # If another thread ran between two calls, it could grow the heap by `kept` or trim all of
        # it; `starmap` makes all calls without a thread switch.
        collections.deque(itertools.starmap(operator.call, calls), maxlen=0)

    def _end(self) -> int:
        return self._sbrk(0) or 0


def make_heap() -> Heap | None:
    """Configure the heap of this process early, while it is small; return None without glibc."""
    try:
        return Heap()
    except (AttributeError, OSError):
        return None
