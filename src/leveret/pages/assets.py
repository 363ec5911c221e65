"""The files of the pages: their texts, and the broker's page as served over HTTP.

Served files are in a table that is built once: a request selects an entry and never names a file,
so no path leads out of the pages.
"""

from __future__ import annotations

import base64
import functools
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The folder of the files.
FILES: Final = Path(__file__).parent / "files"

#: The folders that the broker serves below `/ui/`; `jobs` is for pages that are one file.
SERVED: Final = ("vendor", "common", "broker")

#: The content types; files with other suffixes are not served.
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: The document of the broker's page, which is served as `/`.
INDEX: Final = "broker/index.html"


@dataclass(frozen=True)
class Asset:
    """One file as served; `compressed` is its gzip form."""

    body: bytes
    compressed: bytes
    type: str
    etag: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """Return the served files by request path; all listeners serve the same files.

    Raises: OSError.
    """
    found: dict[str, Asset] = {}
    for folder in SERVED:
        for path in sorted((FILES / folder).rglob("*")):
            kind = TYPES.get(path.suffix)
            if kind is None or not path.is_file():
                continue
            name = path.relative_to(FILES).as_posix()
            found["/" if name == INDEX else f"/ui/{name}"] = _asset(path.read_bytes(), kind)
    return found


def _asset(body: bytes, kind: str) -> Asset:
    digest = hashlib.sha256(body).hexdigest()[:32]
    # Without a timestamp, the compressed bytes are the same at each start.
    return Asset(body, gzip.compress(body, 9, mtime=0), kind, f'"{digest}"')


def text_of(name: str) -> str:
    """Return the text of a file by its path below `files`: `common/style.css`.  Raises: OSError."""
    return (FILES / name).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return the source by which a Content-Security-Policy allows one inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
