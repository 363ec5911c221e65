"""The output buffer: `librt`'s native writer in a compiled build, else a `bytearray`.

Only this module imports `librt`.  It is not compiled, because a compiled module cannot choose
between two imports.  Compiled modules are typed against `librt`, so that each call takes a few
instructions.  Interpreted modules get plain Python, because calling `librt` from the interpreter is
more than ten times slower than a `bytearray`.

Integers are signed, as in `librt`, and callers mask values that may exceed the signed range.
Integers are big-endian on the wire (`_be`) and little-endian on disk (`_le`).
"""

from __future__ import annotations

import importlib.util
import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from librt.strings import (
        BytesWriter as BytesWriter,
    )
    from librt.strings import (
        read_f32_be as read_f32_be,
    )
    from librt.strings import (
        read_f64_be as read_f64_be,
    )
    from librt.strings import (
        read_i16_be as read_i16_be,
    )
    from librt.strings import (
        read_i16_le as read_i16_le,
    )
    from librt.strings import (
        read_i32_be as read_i32_be,
    )
    from librt.strings import (
        read_i32_le as read_i32_le,
    )
    from librt.strings import (
        read_i64_be as read_i64_be,
    )
    from librt.strings import (
        read_i64_le as read_i64_le,
    )
    from librt.strings import (
        write_f64_be as write_f64_be,
    )
    from librt.strings import (
        write_i16_be as write_i16_be,
    )
    from librt.strings import (
        write_i16_le as write_i16_le,
    )
    from librt.strings import (
        write_i32_be as write_i32_be,
    )
    from librt.strings import (
        write_i32_le as write_i32_le,
    )
    from librt.strings import (
        write_i64_be as write_i64_be,
    )
    from librt.strings import (
        write_i64_le as write_i64_le,
    )


def _compiled() -> bool:
    """Return whether the package is compiled, judging by one module, which is not imported."""
    spec = importlib.util.find_spec("leveret.message")
    origin = spec.origin if spec is not None else None
    return origin is not None and not origin.endswith(".py")


#: Whether this build is compiled.
COMPILED: Final = _compiled()

#: The name of the build in the log, the API and the metrics.
BUILD: Final = "compiled" if COMPILED else "pure"

if not TYPE_CHECKING:
    if COMPILED:
        from librt.strings import (
            BytesWriter,
            read_f32_be,
            read_f64_be,
            read_i16_be,
            read_i16_le,
            read_i32_be,
            read_i32_le,
            read_i64_be,
            read_i64_le,
            write_f64_be,
            write_i16_be,
            write_i16_le,
            write_i32_be,
            write_i32_le,
            write_i64_be,
            write_i64_le,
        )
    else:
        _I16: Final = struct.Struct(">h")
        _I32: Final = struct.Struct(">i")
        _I64: Final = struct.Struct(">q")
        _U16: Final = struct.Struct(">H")
        _U32: Final = struct.Struct(">I")
        _F32: Final = struct.Struct(">f")
        _F64: Final = struct.Struct(">d")
        _I16_LE: Final = struct.Struct("<h")
        _I32_LE: Final = struct.Struct("<i")
        _I64_LE: Final = struct.Struct("<q")

        class BytesWriter(bytearray):
            """A growing buffer with `librt`'s methods."""

            __slots__ = ()

            def write(self, data: bytes) -> None:
                """Append all of `data`."""
                self += data

            def getvalue(self) -> bytes:
                """Return a copy of the written bytes."""
                return bytes(self)

            def truncate(self, size: int) -> None:
                """Keep the first `size` bytes."""
                del self[size:]

        def write_i16_be(buffer: BytesWriter, value: int) -> None:
            """Append the low two bytes of `value`, like a narrowing `i16()`."""
            buffer += _U16.pack(value & 0xFFFF)

        def write_i32_be(buffer: BytesWriter, value: int) -> None:
            """Append the low four bytes of `value`, like a narrowing `i32()`."""
            buffer += _U32.pack(value & 0xFFFF_FFFF)

        def write_i64_be(buffer: BytesWriter, value: int) -> None:
            """Append eight bytes."""
            buffer += _I64.pack(value)

        def write_f64_be(buffer: BytesWriter, value: float) -> None:
            """Append the eight bytes of a double."""
            buffer += _F64.pack(value)

        def read_i16_be(data: bytes, index: int) -> int:
            """Return the two bytes at `index`, signed."""
            return _I16.unpack_from(data, index)[0]

        def read_i32_be(data: bytes, index: int) -> int:
            """Return the four bytes at `index`, signed."""
            return _I32.unpack_from(data, index)[0]

        def read_i64_be(data: bytes, index: int) -> int:
            """Return the eight bytes at `index`, signed."""
            return _I64.unpack_from(data, index)[0]

        def write_i16_le(buffer: BytesWriter, value: int) -> None:
            """Append two bytes, little-endian."""
            buffer += _I16_LE.pack(value)

        def write_i32_le(buffer: BytesWriter, value: int) -> None:
            """Append four bytes, little-endian."""
            buffer += _I32_LE.pack(value)

        def write_i64_le(buffer: BytesWriter, value: int) -> None:
            """Append eight bytes, little-endian."""
            buffer += _I64_LE.pack(value)

        def read_i16_le(data: bytes, index: int) -> int:
            """Return the two bytes at `index`, signed, little-endian."""
            return _I16_LE.unpack_from(data, index)[0]

        def read_i32_le(data: bytes, index: int) -> int:
            """Return the four bytes at `index`, signed, little-endian."""
            return _I32_LE.unpack_from(data, index)[0]

        def read_i64_le(data: bytes, index: int) -> int:
            """Return the eight bytes at `index`, signed, little-endian."""
            return _I64_LE.unpack_from(data, index)[0]

        def read_f32_be(data: bytes, index: int) -> float:
            """Return the four-byte float at `index`."""
            return _F32.unpack_from(data, index)[0]

        def read_f64_be(data: bytes, index: int) -> float:
            """Return the eight-byte double at `index`."""
            return _F64.unpack_from(data, index)[0]
