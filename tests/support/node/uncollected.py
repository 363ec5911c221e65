"""Counts of the objects in memory while the collector of cycles is off.

What a test finds left is then what only the collector would free.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Collect what there is, and turn the collector off."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def objects_of(*rooms: str) -> Counter[str]:
    """Return how many objects of each type there are whose modules begin with one of `rooms`."""
    # A type that Cython made can have a descriptor where the name of its module should be.
    kinds = [type(one) for one in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(rooms))
