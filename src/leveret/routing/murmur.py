"""MurmurHash3, its 32-bit variant for x86: the hash that maps routing keys to partitions.

RabbitMQ's exchanges of type x-super-stream and its stream clients use it with this seed, so a key
has the same partition in both brokers.

Source: Austin Appleby's MurmurHash3_x86_32, which is in the public domain.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

#: The seed of RabbitMQ and its clients, the 10,000th prime.
PARTITION_SEED: Final = 104_729

_MASK: Final = 0xFFFF_FFFF


def murmur3(data: bytes, seed: int) -> int:
    """Return the unsigned 32-bit hash of `data`."""
    digest: i64 = i64(seed) & _MASK
    size: i64 = len(data)
    whole: i64 = size - size % 4
    at: i64 = 0
    while at < whole:
        block: i64 = (
            i64(data[at])
            | (i64(data[at + 1]) << 8)
            | (i64(data[at + 2]) << 16)
            | (i64(data[at + 3]) << 24)
        )
        digest ^= _mixed(block)
        digest = ((digest << 13) | (digest >> 19)) & _MASK
        digest = (digest * 5 + 0xE654_6B64) & _MASK
        at += 4
    rest: i64 = 0
    shift: i64 = 0
    while at < size:
        rest |= i64(data[at]) << shift
        shift += 8
        at += 1
    if shift > 0:
        digest ^= _mixed(rest)
    digest ^= size
    digest ^= digest >> 16
    digest = _product(digest, 0x85EB_CA6B)
    digest ^= digest >> 13
    digest = _product(digest, 0xC2B2_AE35)
    digest ^= digest >> 16
    return int(digest)


def partition_of(routing_key: bytes, partitions: int) -> int:
    """Return the partition of a routing key, out of `partitions`."""
    return murmur3(routing_key, PARTITION_SEED) % partitions


def _mixed(block: i64) -> i64:
    """Mix one block of four bytes."""
    mixed = _product(block, 0xCC9E_2D51)
    mixed = ((mixed << 15) | (mixed >> 17)) & _MASK
    return _product(mixed, 0x1B87_3593)


def _product(one: i64, other: i64) -> i64:
    """Return the lower 32 bits of a product, without overflowing 64 bits."""
    low: i64 = one * (other & 0xFFFF)
    high: i64 = ((one * (other >> 16)) & 0xFFFF) << 16
    return (low + high) & _MASK
