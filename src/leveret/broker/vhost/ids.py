"""The numbers of queues and the ids of streams; a data directory uses each only once."""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamIds:
    """Gives each stream an id different from all others, including earlier streams of its name.

    This class counts, so that a test with a seed can be repeated.  A broker uses a subclass with
    random ids, because offsets in checkpoints outlive a data directory.
    """

    def __init__(self) -> None:
        self.given: i64 = 0

    def new_id(self) -> str:
        """Return an id that no other stream ever had: 16 hexadecimal digits."""
        self.given += 1
        return f"{self.given:016x}"


class Ids:
    """Numbers for queues, which grow for the life of the data directory, and ids for streams."""

    def __init__(self, stream_ids: StreamIds | None = None) -> None:
        self.last_queue_id: i64 = 0
        self.stream_ids: StreamIds = StreamIds() if stream_ids is None else stream_ids

    def next_queue_id(self) -> i64:
        """Return a number that no other queue ever had."""
        self.last_queue_id += 1
        return self.last_queue_id

    def used(self, queue_id: i64) -> None:
        """Never return `queue_id` or a lower number again."""
        self.last_queue_id = max(self.last_queue_id, queue_id)
