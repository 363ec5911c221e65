"""The checkpoint of a publishing job: a file from which a later run continues."""

from __future__ import annotations

import json
import os
from pathlib import Path

from leveret.pipelines.refusals import JobError


class ReplayProgress:
    """The published offsets of each source, stored in a file if a path is given.

    The file is replaced atomically.

    Raises: JobError for the file of another job, or a file that is not a checkpoint.
    """

    def __init__(self, path: str | Path | None, name: str) -> None:
        self._path = None if path is None else Path(path)
        self._name = name
        self._next: dict[str, int] = {}
        #: The id of each source's stream, if the broker reports ids.
        self._ids: dict[str, str] = {}
        if self._path is None or not self._path.exists():
            return
        try:
            held = json.loads(self._path.read_bytes())
            self._next = {str(key): int(value) for key, value in held["next_offsets"].items()}
            self._ids = {str(key): str(one) for key, one in held.get("stream_ids", {}).items()}
            name = str(held["name"])
        except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
            raise JobError(f"checkpoint {self._path}: not a checkpoint: {error}") from None
        if name != self._name:
            raise JobError(
                f"checkpoint {self._path} belongs to the job {name}, not to {self._name}, which "
                "has another source, destination or choice of messages. Name another file, or set "
                "`name` to that of the other job."
            )

    def meet(self, source: str, stream_id: str | None) -> None:
        """Record the id of a source's stream.

        Raises: JobError if an earlier run published another stream with this name, since its
        offsets do not apply.
        """
        if stream_id is None:
            return
        known = self._ids.setdefault(source, stream_id)
        if known != stream_id:
            raise JobError(
                f"checkpoint {self._path}: stream {source!r} was deleted and declared again since: "
                f"its id was {known} and is {stream_id}. To publish the new stream, give the job "
                "another `name` and another file."
            )

    def next_offset(self, source: str) -> int:
        """Return the first offset of a source that may be unpublished."""
        return self._next.get(source, 0)

    def advance(self, source: str, offset: int) -> None:
        """Record that all messages of a source before `offset` are confirmed."""
        self._next[source] = offset
        if self._path is None:
            return
        held: dict[str, object] = {"name": self._name, "next_offsets": self._next}
        if self._ids:
            held["stream_ids"] = self._ids
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_name(self._path.name + ".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(held, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
