"""The files of a broker on another machine, sent over HTTP (`/api/backups` of its API).

The broker removes no files during the backup.  After a lost connection, the client reconnects and
continues the file at the same position.  The checksums of all received files are compared with the
broker's before the manifest is written.

Invariants: files are only written below the directory of the backup, whatever paths a broker sends;
at the end, the backup is deleted on the broker, if it can be reached.
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

#: The pauses before repeated requests for a file of which no further bytes arrive.
_PAUSES_SECONDS: Final = (0.0, 1.0, 5.0)

_ID: Final = re.compile(r"[0-9a-f]{32}")


class _RemoteFile(msgspec.Struct):
    path: str
    bytes: int
    xxh3: str


class _Told(msgspec.Struct):
    """The broker's description of a backup."""

    id: str
    product_version: str
    uuid: str
    time_ms: int
    durable_group: int
    files: list[_RemoteFile]


class RemoteBackup:
    """A backup that a broker provides for this process; `files` are its paths and sizes.

    The end of the context deletes it on the broker.  Raises: Failure.
    """

    def __init__(self, place: Remote) -> None:
        self._place = place
        told = self._read(ask(place, "POST", "/api/backups"))
        self._path = f"/api/backups/{told.id}"
        self._connection = place.connection()
        self.files: Final = [(each.path, each.bytes) for each in told.files]
        #: The manifest, without files until the caller sets them.
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
        # Without this request, the broker releases its files after some time.
        with contextlib.suppress(exits.Failure):
            ask(self._place, "DELETE", self._path)

    def copy(self, to: Path, beat: Callable[[int], None]) -> list[Copied]:
        """Write and sync all files below a directory; return them.  Raises: Failure; OSError."""
        copied: list[Copied] = []
        for path, size in self.files:
            with create(to / path) as writing:
                digest = write_blocks(writing.fileno(), self._blocks(path, size), beat)
                os.fsync(writing.fileno())
            copied.append(Copied(path, size, digest))
        return copied

    def check(self, copied: list[Copied]) -> None:
        """Check that the broker has not released its files, and that they arrived undamaged.

        Raises: Failure.
        """
        told = self._read(ask(self._place, "GET", self._path))
        sent = {each.path: each.xxh3 for each in told.files}
        for each in copied:
            if sent.get(each.path) != each.xxh3:
                text = f"{each.path} was damaged on the way from the broker: make the backup again"
                raise exits.Failure(text, exits.IO_FAILED)

    def _read(self, answer: object) -> _Told:
        """Return the broker's description of a backup.  Raises: Failure if it is invalid."""
        try:
            told = msgspec.convert(answer, _Told)
        except msgspec.ValidationError as error:
            raise self._strange(str(error)) from None
        if not _ID.fullmatch(told.id):
            raise self._strange(f"the id {told.id!r}")
        paths = {each.path for each in told.files if PATH.fullmatch(each.path) and each.bytes >= 0}
        if len(paths) != len(told.files):
            raise self._strange("files that do not belong in a backup")
        return told

    def _strange(self, what: str) -> exits.Failure:
        text = f"{self._place} sends an invalid description of a backup: {what}"
        return exits.Failure(text, exits.PROTOCOL)

    def _blocks(self, path: str, size: int) -> Iterator[bytes]:
        """Yield a file's bytes; repeat the request after a lost connection.  Raises: Failure."""
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
                    text = f"{self._place} does not send {path} ({error!r}); see its log"
                    raise exits.Failure(text, exits.UNAVAILABLE) from None
                time.sleep(_PAUSES_SECONDS[max(0, failures - 1)])

    def _request(self, path: str, at: int) -> http.client.HTTPResponse:
        """Request a file from position `at`.  Raises: OSError; HTTPException; Failure."""
        where = f"{self._place.prefix}{self._path}/files/{quote(path, safe='')}?offset={at}"
        self._connection.request("GET", where, headers=self._place.headers())
        response = self._connection.getresponse()
        if response.status == http.client.OK:
            return response
        read_body(response)
        if response.status in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            text = f"{self._place} refuses to send {path}: the user has lost the permission"
            raise exits.Failure(text, exits.NO_PERMISSION)
        if response.status == http.client.NOT_FOUND:
            text = f"{self._place} released its files too early: the backup is not complete"
            raise exits.Failure(text, exits.IO_FAILED)
        raise http.client.HTTPException(f"{response.status} {response.reason}")
