"""The layout of a reference to a chunk in a record of a snapshot or the journal: 13 numbers.

u64 file | u64 position | u64 size | u64 first sequence | u64 last | u64 count |
i64 least timestamp | i64 greatest timestamp | u64 number of persistent messages | u64 their bytes |
u64 bytes of their bodies | i64 least expiry | u64 greatest delivery count

The second-highest bit of the file's number marks an adopted chunk.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.store.segments.segments import ChunkRef
from leveret.wire.buffer import BytesWriter, read_i64_le, write_i64_le

CHUNK_REF_BYTES: Final = 13 * 8

_ADOPTED: Final[i64] = 1 << 62


def write_chunk_ref(writer: BytesWriter, ref: ChunkRef) -> None:
    """Append a reference."""
    write_i64_le(writer, ref.file_number | (_ADOPTED if ref.adopted else 0))
    write_i64_le(writer, ref.position)
    write_i64_le(writer, ref.size)
    write_i64_le(writer, ref.first)
    write_i64_le(writer, ref.last)
    write_i64_le(writer, ref.count)
    write_i64_le(writer, ref.min_timestamp)
    write_i64_le(writer, ref.max_timestamp)
    write_i64_le(writer, ref.persistent)
    write_i64_le(writer, ref.persistent_bytes)
    write_i64_le(writer, ref.persistent_bodies)
    write_i64_le(writer, ref.min_expiry)
    write_i64_le(writer, ref.count_max)


def read_chunk_ref(data: bytes, position: i64) -> ChunkRef:
    """Return the reference at `position`."""
    file_number = read_i64_le(data, position)
    return ChunkRef(
        file_number & ~_ADOPTED,
        read_i64_le(data, position + 8),
        read_i64_le(data, position + 16),
        read_i64_le(data, position + 24),
        read_i64_le(data, position + 32),
        read_i64_le(data, position + 40),
        read_i64_le(data, position + 48),
        read_i64_le(data, position + 56),
        read_i64_le(data, position + 64),
        read_i64_le(data, position + 72),
        read_i64_le(data, position + 80),
        read_i64_le(data, position + 88),
        read_i64_le(data, position + 96),
        False,
        file_number & _ADOPTED != 0,
    )
