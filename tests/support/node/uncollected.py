"""Counts of the objects in memory while the garbage collector is off.

The objects that a test then finds are those that only the collector would free.
"""

from __future__ import annotations

import contextlib
import gc
from collections import Counter
from collections.abc import Iterator


@contextlib.contextmanager
def no_collector() -> Iterator[None]:
    """Collect all garbage, and turn the collector off."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def objects_of(*rooms: str) -> Counter[str]:
    """Count the objects of each type from modules with a name that begins with one of `rooms`."""
    # In a type made by Cython, `__module__` can be a descriptor instead of a name.
    kinds = [type(one) for one in gc.get_objects()]
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(rooms))
