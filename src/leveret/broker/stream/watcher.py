"""Who waits at the end of a stream for more to be seen."""

from __future__ import annotations

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWatcher:
    """Who waits at the end of a stream."""

    def moved(self) -> None:
        """Hear, once, that more may be seen, or that the stream was deleted."""
        raise RuntimeError("who watches a stream says how it goes on")
