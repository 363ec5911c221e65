"""The progress of a publishing job in a file, so that a later run begins where this one ended."""

from __future__ import annotations

import json
import os
from pathlib import Path

from leveret.pipelines.refusals import JobError


class ReplayProgress:
    """The published offsets of each source, in a file that is replaced as a whole, or nowhere.

    Raises: JobError for the file of another job, or one that is no checkpoint.
    """

    def __init__(self, path: str | Path | None, name: str) -> None:
        self._path = None if path is None else Path(path)
        self._name = name
        self._next: dict[str, int] = {}
        #: The id of each source's stream, if the broker gives one.
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
                f"checkpoint {self._path} is of {name}, and this is {self._name}: another source, "
                "destination or choice of messages. Name another file, or that job's `name`."
            )

    def meet(self, source: str, stream_id: str | None) -> None:
        """Record the id of a source's stream.

        Raises: JobError if another stream of its name was published: its offsets do not apply to
        this one.
        """
        if stream_id is None:
            return
        known = self._ids.setdefault(source, stream_id)
        if known != stream_id:
            raise JobError(
                f"checkpoint {self._path}: stream {source!r} was deleted and declared again since: "
                f"its id was {known} and is {stream_id}. To publish the new one, give the job a "
                "`name` of its own and another file."
            )

    def next_offset(self, source: str) -> int:
        """Return the first offset that may be unpublished."""
        return self._next.get(source, 0)

    def advance(self, source: str, offset: int) -> None:
        """Record that all messages before an offset are confirmed."""
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
