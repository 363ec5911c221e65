"""The options of a job: one frozen object, created from the arguments of the job's function.

A job is a function of a session and an options object.  The decorator `takes` replaces the object
by its fields, as arguments of the function.  Each option therefore has its name, type, default and
check in one place.

Invariant: an options object is valid, because its class checks the options before Spark starts.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from leveret.pipelines.refusals import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fields = ParamSpec("Fields")
Options = TypeVar("Options")
Result = TypeVar("Result")
Job = Callable[["SparkSession", Options], Result]


def takes(
    options: Callable[Fields, Options],
) -> Callable[[Job[Options, Result]], Callable[Concatenate[SparkSession, Fields], Result]]:
    """Return a decorator that makes the fields of a job's options the arguments of the job."""

    def with_fields(
        job: Job[Options, Result],
    ) -> Callable[Concatenate[SparkSession, Fields], Result]:
        @wraps(job)
        def run(spark: SparkSession, /, *args: Fields.args, **kwargs: Fields.kwargs) -> Result:
            return job(spark, options(*args, **kwargs))

        # The signature for `help` and notebooks.
        own = inspect.signature(job)
        session = own.parameters["spark"].replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        fields = inspect.signature(options).parameters.values()
        run.__signature__ = own.replace(parameters=(session, *fields))  # type: ignore[attr-defined]
        return run

    return with_fields


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The messages that a job reads: a stream (`uri` and `stream`) or an archive (`path`).

    With `path`, `stream` selects one of the archive's streams.  `options` are further options of
    the data source.
    """

    uri: str | None = field(default=None, repr=False)
    stream: str | None = None
    path: str | Path | None = None
    password_env: str | None = None
    options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        self.check_source()

    def check_source(self) -> None:
        """Check that exactly one source is given.  Raises: JobError."""
        is_archive = self.path is not None and self.uri is None
        is_stream = self.path is None and self.uri is not None and self.stream is not None
        if not is_archive and not is_stream:
            raise JobError("messages come from a stream (uri and stream) or from an archive (path)")

    def stream_options(self) -> dict[str, str]:
        """Return the options of the data source for the stream."""
        assert self.uri is not None
        assert self.stream is not None
        return {**source_options(self.uri, self.password_env, self.options), "stream": self.stream}


def source_options(
    uri: str, password_env: str | None, options: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the options of the data source that name a broker, with further options."""
    texts = {**(options or {}), "uri": uri}
    if password_env is not None:
        texts["passwordEnv"] = password_env
    return texts
