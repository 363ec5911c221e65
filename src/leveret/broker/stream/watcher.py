"""Those that wait at the end of a stream for more visible messages."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class StreamWatcher:
    """Something that waits at the end of a stream."""

    @abstractmethod
    def moved(self) -> None:
        """Continue: more may be visible, or the stream was deleted.  This is called once."""
