"""The hold on a running broker's files during a backup: `POST /api/backup` on its Unix socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from leveret.cli import exits
from leveret.cli.management_client import CLI_ANSWER_BYTES_MAX, UnixConnection
from leveret.management.unix_socket import ForeignSocket

#: The interval at which this process shows the broker that it is alive.
_BEAT_SECONDS: Final = 2.0


class NoBroker(Exception):
    """No broker listens on the socket."""


class BackupHold:
    """A request during which the broker removes no files; `answer` is the broker's first answer.

    The hold ends with `end`, at the end of the context, or with this process.

    Raises: NoBroker; Failure.
    """

    def __init__(self, socket: Path) -> None:
        self._connection = UnixConnection(socket)
        try:
            self._connection.putrequest("POST", "/api/backup")
            self._connection.putheader("Transfer-Encoding", "chunked")
            self._connection.endheaders()
        except ForeignSocket as error:
            text = f"{socket}: {error.strerror}"
            raise exits.Failure(text, exits.NO_PERMISSION) from None
        except PermissionError:
            text = f"{socket} belongs to another user: only the broker's user can back it up"
            raise exits.Failure(text, exits.NO_PERMISSION) from None
        except (FileNotFoundError, ConnectionRefusedError):
            raise NoBroker from None
        except OSError as error:
            raise exits.Failure(f"{socket}: {error}", exits.UNAVAILABLE) from None
        self._beaten = time.monotonic()
        with self._failing():
            self._response = self._connection.getresponse()
            if self._response.status != http.client.OK:
                text = f"the broker answered {self._response.status} {self._response.reason}"
                raise exits.Failure(text, exits.INTERNAL)
            self.answer: dict[str, object] = json.loads(
                self._response.readline(CLI_ANSWER_BYTES_MAX)
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect, after which the broker releases the files."""
        self._connection.close()

    def beat(self) -> None:
        """Show the broker, from time to time, that this process is alive.  Raises: Failure."""
        now = time.monotonic()
        if now - self._beaten >= _BEAT_SECONDS:
            self._beaten = now
            self._send(b"1\r\n.\r\n")

    def end(self) -> None:
        """End the hold.  Raises: Failure if it ended too early."""
        self._send(b"0\r\n\r\n")
        with self._failing():
            last = json.loads(self._response.readline(CLI_ANSWER_BYTES_MAX) or b"{}")
            if last.get("lasted") is not True:
                text = "the broker released its files too early: the backup is not complete"
                raise exits.Failure(text, exits.IO_FAILED)

    def _send(self, data: bytes) -> None:
        with self._failing():
            self._connection.sock.sendall(data)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Convert connection errors to Failure."""
        try:
            yield
        except (OSError, ValueError, http.client.HTTPException) as error:
            text = f"the connection to the broker failed while its files were copied: {error!r}"
            raise exits.Failure(text, exits.UNAVAILABLE) from None
