"""A dict for millions of entries that grows without moving all of them at once.

A plain dict moves all its entries when it grows, which takes 40 ms for 350,000 names.  A
`LargeDict` has one dict for its first entries, and distributes later entries over many dicts by the
hashes of their keys.

It has only the methods that the broker needs.  Methods that return many entries return a list.

Invariants: a key is in exactly one of the dicts.  With up to a few million keys, no dict has many
more than `_FIRST_MAX` entries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar, final

from mypy_extensions import i64

K = TypeVar("K")
V = TypeVar("V")

#: The maximum size of the first dict.  Only its entries keep their insertion order.
_FIRST_MAX: Final[i64] = 16_384

#: The mask for the index of a further dict: the number of further dicts minus one.
_MASK: Final[i64] = 255


@final
class LargeDict(Generic[K, V]):
    """A dict for up to a few million entries."""

    def __init__(self) -> None:
        self._first: dict[K, V] = {}
        #: The further dicts; empty until the first dict is full.
        self._others: list[dict[K, V]] = []
        self._in_others: i64 = 0
        #: The dict from which `popitem` last took an entry.
        self._last: i64 = 0

    def _other(self, key: K) -> dict[K, V]:
        """Return the further dict for a key that is not in the first dict."""
        code: i64 = hash(key)
        # Do not use the lowest bits, by which each dict distributes its keys.
        return self._others[((code >> 8) ^ (code >> 40)) & _MASK]

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None."""
        found = self._first.get(key)
        if found is None and self._in_others > 0:
            found = self._other(key).get(key)
        return found

    def __getitem__(self, key: K) -> V:
        """Return the value of a key.  Raises: KeyError."""
        if self._in_others > 0 and key not in self._first:
            return self._other(key)[key]
        return self._first[key]

    def __contains__(self, key: object) -> bool:
        """Return whether a key exists."""
        if key in self._first:
            return True
        code: i64 = hash(key)
        return self._in_others > 0 and key in self._others[((code >> 8) ^ (code >> 40)) & _MASK]

    def __setitem__(self, key: K, value: V) -> None:
        """Set the value of a key."""
        first = self._first
        if self._in_others > 0:
            other = self._other(key)
            if key in other:
                other[key] = value
                return
        if len(first) < _FIRST_MAX or key in first:
            first[key] = value
            return
        if not self._others:
            self._others = [{} for _ in range(int(_MASK) + 1)]
        self._other(key)[key] = value
        self._in_others += 1

    def __delitem__(self, key: K) -> None:
        """Delete a key.  Raises: KeyError."""
        if self._in_others > 0 and key not in self._first:
            del self._other(key)[key]
            self._in_others -= 1
        else:
            del self._first[key]

    def pop(self, key: K) -> V | None:
        """Delete a key and return its value, or None if it does not exist."""
        found = self.get(key)
        if found is not None:
            del self[key]
        return found

    def popitem(self) -> tuple[K, V]:
        """Delete any entry and return it.  Raises: KeyError if the dict is empty."""
        if self._in_others == 0:
            return self._first.popitem()
        while not self._others[self._last]:
            self._last = (self._last + 1) & _MASK
        self._in_others -= 1
        return self._others[self._last].popitem()

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._first) + int(self._in_others)

    def keys(self) -> list[K]:
        """Return all keys."""
        return [key for table in self._tables() for key in table]

    def values(self) -> list[V]:
        """Return all values."""
        return [value for table in self._tables() for value in table.values()]

    def items(self) -> list[tuple[K, V]]:
        """Return all entries."""
        return [item for table in self._tables() for item in table.items()]

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys."""
        return iter(self.keys())

    def in_parts(self) -> Iterator[list[V]]:
        """Yield the values of one dict after another.

        Entries may be set and deleted meanwhile.  A key never moves to another dict.
        """
        yield list(self._first.values())
        for table in self._others:
            yield list(table.values())

    def _tables(self) -> list[dict[K, V]]:
        """Return the dicts that may have entries."""
        return [self._first, *self._others] if self._in_others > 0 else [self._first]
