"""The functions of `xxhash` that Leveret uses: XXH3 with 64 bits, by numpy.

A chunk of 1 MB takes some 3 ms.  The algorithm is that of
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md.
"""

from __future__ import annotations

from struct import unpack_from
from typing import Any, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME64_3, _PRIME64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_PRIME_MX1, _PRIME_MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
_MASK = 0xFFFF_FFFF_FFFF_FFFF

_STRIPE, _STRIPES, _BLOCK = 64, 16, 1024
#: The lanes in the order in which data is added to them.
_SWAPPED = [1, 0, 3, 2, 5, 4, 7, 6]


class xxh3_64:  # noqa: N801  xxhash's name
    """A digest of bytes given in parts."""

    def __init__(self, data: Buffer = b"", seed: int = 0) -> None:
        self._data = bytearray(data)
        self._seed = seed

    def update(self, data: Buffer) -> None:
        """Add bytes."""
        self._data += data

    def digest(self) -> bytes:
        """Return the digest of all bytes, big-endian."""
        return xxh3_64_digest(self._data, self._seed)


def xxh3_64_digest(data: Buffer, seed: int = 0) -> bytes:
    """Return the digest of bytes, big-endian."""
    return xxh3_64_intdigest(data, seed).to_bytes(8, "big")


def xxh3_64_hexdigest(data: Buffer, seed: int = 0) -> str:
    """Return the digest of bytes in hexadecimal digits."""
    return xxh3_64_digest(data, seed).hex()


def xxh3_64_intdigest(data: Buffer, seed: int = 0) -> int:
    """Return the digest of bytes as a number."""
    view = memoryview(data).cast("B")
    size = len(view)
    if size <= 16:
        return _upto_16(bytes(view), size, seed)
    if size <= 240:
        return _upto_240(bytes(view), size, seed)
    return _long(view, size, seed)


def _u64(data: bytes, at: int) -> int:
    found: int = unpack_from("<Q", data, at)[0]
    return found


def _u32(data: bytes, at: int) -> int:
    found: int = unpack_from("<I", data, at)[0]
    return found


def _fold(left: int, right: int) -> int:
    """Return the two halves of a product, combined."""
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value ^= value >> 37
    value = value * _PRIME_MX1 & _MASK
    return value ^ value >> 32


def _xxh64_avalanche(value: int) -> int:
    value ^= value >> 33
    value = value * _PRIME64_2 & _MASK
    value ^= value >> 29
    value = value * _PRIME64_3 & _MASK
    return value ^ value >> 32


def _rotated(value: int, by: int) -> int:
    return (value << by | value >> 64 - by) & _MASK


def _upto_16(data: bytes, size: int, seed: int) -> int:
    if size > 8:
        low = _u64(data, 0) ^ ((_u64(_SECRET, 24) ^ _u64(_SECRET, 32)) + seed & _MASK)
        high = _u64(data, size - 8) ^ ((_u64(_SECRET, 40) ^ _u64(_SECRET, 48)) - seed & _MASK)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _fold(low, high) & _MASK)
    if size >= 4:
        half = seed & 0xFFFF_FFFF
        seed ^= int.from_bytes(half.to_bytes(4, "little"), "big") << 32
        mixed = _u32(data, size - 4) + (_u32(data, 0) << 32)
        mixed ^= (_u64(_SECRET, 8) ^ _u64(_SECRET, 16)) - seed & _MASK
        mixed ^= _rotated(mixed, 49) ^ _rotated(mixed, 24)
        mixed = mixed * _PRIME_MX2 & _MASK
        mixed ^= (mixed >> 35) + size
        mixed = mixed * _PRIME_MX2 & _MASK
        return mixed ^ mixed >> 28
    if size:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _xxh64_avalanche(mixed ^ ((_u32(_SECRET, 0) ^ _u32(_SECRET, 4)) + seed & _MASK))
    return _xxh64_avalanche(seed ^ _u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _mix(data: bytes, at: int, secret_at: int, seed: int) -> int:
    low = _u64(data, at) ^ (_u64(_SECRET, secret_at) + seed & _MASK)
    high = _u64(data, at + 8) ^ (_u64(_SECRET, secret_at + 8) - seed & _MASK)
    return _fold(low, high)


def _upto_240(data: bytes, size: int, seed: int) -> int:
    total = size * _PRIME64_1
    if size <= 128:
        for number in range((size - 1) // 32 + 1):
            total += _mix(data, 16 * number, 32 * number, seed)
            total += _mix(data, size - 16 * (number + 1), 32 * number + 16, seed)
        return _avalanche(total & _MASK)
    for number in range(8):
        total += _mix(data, 16 * number, 16 * number, seed)
    total = _avalanche(total & _MASK)
    for number in range(8, size // 16):
        total += _mix(data, 16 * number, 16 * (number - 8) + 3, seed)
    total += _mix(data, size - 16, 136 - 17, seed)
    return _avalanche(total & _MASK)


def _long(view: memoryview, size: int, seed: int) -> int:
    import numpy as np

    secret = _SECRET if seed == 0 else _seeded(seed)
    keys = np.array([np.frombuffer(secret, "<u8", 8, 8 * n) for n in range(_STRIPES)])
    lanes = np.array(
        (
            (_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3),
            (_PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1),
        ),
        np.uint64,
    ).ravel()
    blocks = (size - 1) // _BLOCK
    data = np.frombuffer(view, "<u8", blocks * _BLOCK // 8).reshape(blocks, _STRIPES, 8)
    last_key = np.frombuffer(secret, "<u8", 8, len(secret) - _STRIPE)
    prime = np.uint64(_PRIME32_1)
    # 64 KiB at a time, so that what is between stays in the processor's cache.
    for first in range(0, blocks, 64):
        for added in _sums(data[first : first + 64], keys):
            lanes += added
            lanes ^= lanes >> 47
            lanes ^= last_key
            lanes *= prime
    stripes = (size - 1 - blocks * _BLOCK) // _STRIPE
    rest = np.frombuffer(view, "<u8", 8 * stripes, blocks * _BLOCK).reshape(1, stripes, 8)
    lanes += _sums(rest, keys[:stripes])[0]
    end = np.frombuffer(view, "<u8", 8, size - _STRIPE).reshape(1, 1, 8)
    end_key = np.frombuffer(secret, "<u8", 8, len(secret) - _STRIPE - 7)
    lanes += _sums(end, end_key.reshape(1, 8))[0]
    total = size * _PRIME64_1
    values = [int(lane) for lane in lanes]
    for number in range(0, 8, 2):
        left = values[number] ^ _u64(secret, 11 + 8 * number)
        total += _fold(left, values[number + 1] ^ _u64(secret, 19 + 8 * number))
    return _avalanche(total & _MASK)


def _sums(data: Any, keys: Any) -> Any:
    """Return what each block adds to the lanes."""
    keyed = data ^ keys
    products = (keyed & 0xFFFF_FFFF) * (keyed >> 32)
    return products.sum(axis=1) + data.sum(axis=1)[:, _SWAPPED]


def _seeded(seed: int) -> bytes:
    """Return the secret of a seed."""
    parts = []
    for at in range(0, 192, 16):
        parts.append((_u64(_SECRET, at) + seed & _MASK).to_bytes(8, "little"))
        parts.append((_u64(_SECRET, at + 8) - seed & _MASK).to_bytes(8, "little"))
    return b"".join(parts)
