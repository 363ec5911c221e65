"""Partitions by MurmurHash3: those of an implementation in plain integers, with known values."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.routing.murmur import PARTITION_SEED, partition_of

#: Values that implementations of MurmurHash3_x86_32 are commonly verified with.
KNOWN = [
    (b"", 0, 0),
    (b"", 1, 0x514E28B7),
    (b"", 0xFFFFFFFF, 0x81F16F39),
    (b"\xff\xff\xff\xff", 0, 0x76293B50),
    (b"\x21\x43\x65\x87", 0, 0xF55B516B),
    (b"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE),
    (b"\x21\x43\x65", 0, 0x7E4A8634),
    (b"\x21\x43", 0, 0xA0F7B07A),
    (b"\x21", 0, 0x72661CF4),
    (b"\0\0\0\0", 0, 0x2362F9DE),
    (b"\0\0\0", 0, 0x85F0B427),
    (b"\0\0", 0, 0x30F4C306),
    (b"\0", 0, 0x514E28B7),
    (b"aaaa", 0x9747B28C, 0x5A97808A),
    (b"Hello, world!", 0x9747B28C, 0x24884CBA),
]


@pytest.mark.parametrize(("data", "seed", "expected"), KNOWN)
def test_the_known_values(data: bytes, seed: int, expected: int) -> None:
    assert plain(data, seed) == expected


def plain(data: bytes, seed: int) -> int:
    """The hash in Python's integers of any size."""

    def turned(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & 0xFFFFFFFF

    def mixed(block: bytes) -> int:
        value = int.from_bytes(block, "little") * 0xCC9E2D51 & 0xFFFFFFFF
        return turned(value, 15) * 0x1B873593 & 0xFFFFFFFF

    digest = seed
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        digest = turned(digest ^ mixed(data[at : at + 4]), 13) * 5 + 0xE6546B64 & 0xFFFFFFFF
    digest ^= mixed(data[whole:]) ^ len(data)
    digest = (digest ^ digest >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    digest = (digest ^ digest >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return digest ^ digest >> 16


@given(st.binary(max_size=300))
def test_a_partition_is_by_the_hash(data: bytes) -> None:
    assert partition_of(data, 2**32) == plain(data, PARTITION_SEED)


def test_partitions_are_even_and_stay() -> None:
    """The partitions of these keys are stored in streams: they must never change."""
    keys = [b"invoice-%d" % number for number in range(9000)]
    counts = Counter(partition_of(key, 3) for key in keys)
    assert sorted(counts) == [0, 1, 2]
    assert min(counts.values()) > 2800
    assert [partition_of(b"invoice-%d" % number, 3) for number in range(8)] == [
        plain(b"invoice-%d" % number, PARTITION_SEED) % 3 for number in range(8)
    ]
    assert partition_of("ü".encode(), 1) == 0
