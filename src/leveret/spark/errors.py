"""The base of the errors that the source and the sink raise deliberately."""

from __future__ import annotations


class SourceError(Exception):
    """An error whose text suffices: it names the thing, the cause and, if there is one, the remedy.

    Spark shows it without the frames that it passed through (`entries.py`).
    """
