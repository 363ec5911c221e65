"""The files of a broker on another machine, sent over HTTP (`/api/backups` of its API).

The broker keeps all files while they are read here.  A connection that breaks is made again, and
the file goes on where it broke.  What arrived is compared with the checksums of what was sent
before anything looks like a backup.

Invariants: a file is written below the directory of the backup alone, whatever a broker calls it;
a broker that is asked for a backup hears in the end that it is over, if it can be reached.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote

import msgspec

from leveret.cli import exits
from leveret.cli.backup.files import BLOCK_BYTES, PATH, Copied, Manifest, create, write_blocks
from leveret.cli.contexts.remote import Remote
from leveret.cli.management_client import ask, read_body

#: Before each further request for a file of which nothing more comes.
_PAUSES_SECONDS: Final = (0.0, 1.0, 5.0)

_ID: Final = re.compile(r"[0-9a-f]{32}")


class _File(msgspec.Struct):
    path: str
    bytes: int
    xxh3: str


class _Told(msgspec.Struct):
    """What the broker tells of a backup."""

    id: str
    product_version: str
    uuid: str
    time_ms: int
    durable_group: int
    files: list[_File]


class RemoteBackup:
    """A backup that a broker makes for this process; `files` are its paths and sizes.

    It ends with the context.  Raises: Failure.
    """

    def __init__(self, place: Remote) -> None:
        self._place = place
        told = self._read(ask(place, "POST", "/api/backups"))
        self._path = f"/api/backups/{told.id}"
        self._connection = place.connection()
        self.files: Final = [(each.path, each.bytes) for each in told.files]
        #: What it is of, without files.
        self.manifest: Final = Manifest(
            told.product_version, told.uuid, told.time_ms, told.durable_group
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()
        # A broker that does not hear it lets go of its files by itself.
        with contextlib.suppress(exits.Failure):
            ask(self._place, "DELETE", self._path)

    def copy(self, to: Path, beat: Callable[[int], None]) -> list[Copied]:
        """Write all files below a directory, durably; return them.  Raises: Failure; OSError."""
        copied: list[Copied] = []
        for path, size in self.files:
            with create(to / path) as writing:
                digest = write_blocks(writing.fileno(), self._blocks(path, size), beat)
                os.fsync(writing.fileno())
            copied.append(Copied(path, size, digest))
        return copied

    def check(self, copied: list[Copied]) -> None:
        """Check that the broker kept its files until now, and that they arrived as it read them.

        Raises: Failure.
        """
        told = self._read(ask(self._place, "GET", self._path))
        sent = {each.path: each.xxh3 for each in told.files}
        for each in copied:
            if sent.get(each.path) != each.xxh3:
                text = f"{each.path} did not arrive as the broker read it: make the backup again"
                raise exits.Failure(text, exits.IO_FAILED)

    def _read(self, answer: object) -> _Told:
        """Return what the broker tells of a backup.  Raises: Failure for what no broker tells."""
        try:
            told = msgspec.convert(answer, _Told)
        except msgspec.ValidationError as error:
            raise self._strange(str(error)) from None
        if not _ID.fullmatch(told.id):
            raise self._strange(f"the id {told.id!r}")
        paths = {each.path for each in told.files if PATH.fullmatch(each.path) and each.bytes >= 0}
        if len(paths) != len(told.files):
            raise self._strange("files that no backup has")
        return told

    def _strange(self, what: str) -> exits.Failure:
        text = f"{self._place} answers as no broker does that can be backed up: {what}"
        return exits.Failure(text, exits.PROTOCOL)

    def _blocks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield a file's bytes, over as many requests as it takes.  Raises: Failure."""
        at = 0
        failures = 0
        while at < size:
            before = at
            try:
                response = self._request(path, at)
                while at < size:
                    block = response.read(min(BLOCK_BYTES, size - at))
                    if not block:
                        raise ConnectionResetError("it ended early")
                    at += len(block)
                    yield block
            except (OSError, http.client.HTTPException) as error:
                self._connection.close()
                failures = 0 if at > before else failures + 1
                if failures > len(_PAUSES_SECONDS):
                    text = f"{self._place} does not send {path} ({error!r}); its log may say why"
                    raise exits.Failure(text, exits.UNAVAILABLE) from None
                time.sleep(_PAUSES_SECONDS[max(0, failures - 1)])

    def _request(self, path: str, at: int) -> http.client.HTTPResponse:
        """Ask for a file from a position on.  Raises: OSError; HTTPException; Failure."""
        where = f"{self._place.prefix}{self._path}/files/{quote(path, safe='')}?offset={at}"
        self._connection.request("GET", where, headers=self._place.headers())
        response = self._connection.getresponse()
        if response.status == http.client.OK:
            return response
        read_body(response)
        if response.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            text = f"{self._place} refuses to send {path}: the right to it went"
            raise exits.Failure(text, exits.NO_PERMISSION)
        if response.status == http.client.NOT_FOUND:
            text = f"{self._place} let go of its files too early: the backup is not complete"
            raise exits.Failure(text, exits.IO_FAILED)
        raise http.client.HTTPException(f"{response.status} {response.reason}")
