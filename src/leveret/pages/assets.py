"""Reads the files of the pages, and prepares the files that the broker serves over HTTP.

Served files are in a table that is built once.  A request selects an entry of the table and never
opens a file, so no request path can reach a file outside the folder.
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

#: The folder with the files of the pages.
FILES: Final = Path(__file__).parent / "files"

#: The folders that the broker serves below `/ui/`; the pages of `jobs` are not served.
SERVED: Final = ("vendor", "common", "broker")

#: The content types by suffix; files with other suffixes are not served.
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: The HTML document of the broker's page, which is served as `/`.
INDEX: Final = "broker/index.html"


@dataclass(frozen=True)
class Asset:
    """A served file; `compressed` is its body compressed with gzip."""

    body: bytes
    compressed: bytes
    type: str
    etag: str


@functools.cache
def assets() -> Mapping[str, Asset]:
    """Return the served files by request path, the same for all listeners.

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
    # Without a timestamp, each start produces the same compressed bytes.
    return Asset(body, gzip.compress(body, 9, mtime=0), kind, f'"{digest}"')


def text_of(name: str) -> str:
    """Return the text of a file below `files`, such as `common/style.css`.  Raises: OSError."""
    return (FILES / name).read_text(encoding="utf-8")


def hash_source(text: str) -> str:
    """Return the Content-Security-Policy source that allows this inline script or style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
