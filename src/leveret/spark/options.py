"""The options of the data source: text from Spark to one frozen object.

Names are Kafka's where Kafka has one, in any case.  An unknown option is an error, because a
mistyped limit or offset would otherwise be ignored in silence; so is one that has no meaning for
the kind of read that it was given to.

Invariant: no password is in an `Options`: it stays in the URI, which `repr` hides, or in the
environment of driver and executors, so that it enters no plan and no checkpoint.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from leveret.client import Parameters, parse_uri
from leveret.limits import SPARK_PARTITION_RECORDS
from leveret.spark.offsets import EARLIEST, LATEST, parse_position

TRANSPORTS: Final = ("auto", "amqp")

#: What only one kind of read knows.
BATCH_ONLY: Final = ("endingOffsets",)
STREAM_ONLY: Final = ("maxOffsetsPerTrigger",)

_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class OptionError(ValueError):
    """An option that is unknown, missing or wrong; the text names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a read was asked for; `None` where nothing was said."""

    uri: str = field(repr=False)
    stream: str
    password_env: str | None = None
    starting_offset: int | None = None
    ending_offset: int | None = None
    max_offsets_per_trigger: int | None = None
    max_records_per_partition: int = SPARK_PARTITION_RECORDS
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = True
    transport: str = "auto"
    prefetch: int = 2000
    poll_timeout_ms: int = 60_000
    num_retries: int = 3
    given: tuple[str, ...] = field(default=(), repr=False)

    def parameters(self) -> Parameters:
        """Return where to connect, with the password from the environment.

        Raises: OptionError when the variable is not set in this process.
        """
        parameters = parse_uri(self.uri)
        if self.password_env is None:
            return parameters
        password = os.environ.get(self.password_env)
        if password is None:
            raise OptionError(
                f"option 'passwordEnv': {self.password_env} is not set in the environment of "
                f"process {os.getpid()}; the driver and every executor need it"
            )
        return dataclasses.replace(parameters, password=password)

    def for_batch(self) -> Options:
        """Return the options of a batch read.  Raises: OptionError for those of a stream."""
        self._refuse(STREAM_ONLY, "a streaming read")
        if self.starting_offset == LATEST:
            raise OptionError("option 'startingOffsets': a batch read cannot start at the latest")
        if self.ending_offset == EARLIEST:
            raise OptionError("option 'endingOffsets': a batch read cannot end at the earliest")
        return self

    def for_stream(self) -> Options:
        """Return the options of a streaming read.  Raises: OptionError for those of a batch."""
        self._refuse(BATCH_ONLY, "a batch read")
        return self

    def _refuse(self, names: tuple[str, ...], where: str) -> None:
        for name in names:
            if name in self.given:
                raise OptionError(f"option {name!r} belongs to {where}")


def parse_options(raw: Mapping[str, str]) -> Options:
    """Return what the options say.  Raises: OptionError."""
    if "provider" in raw:
        # Spark 4.3.0 gives these options when a table is made, and none when it is read.
        raise OptionError(
            "CREATE TABLE makes no table that Spark could read: it keeps no options for a Python "
            "source. Use CREATE TEMPORARY VIEW … USING leveret OPTIONS (…)"
        )
    texts = _by_name(raw)
    for name in ("uri", "stream"):
        if name not in texts:
            raise OptionError(f"option {name!r} is missing")
    values: dict[str, object] = {}
    for name, text in texts.items():
        attribute, parse = _PARSERS[name]
        try:
            values[attribute] = parse(text)
        except ValueError as error:
            raise OptionError(f"option {name!r}: {error}") from None
    stream = texts["stream"]
    for name in ("startingOffsets", "endingOffsets"):
        if name in texts:
            values[_PARSERS[name][0]] = _position(name, texts[name], stream)
    options = Options(**values, given=tuple(texts))  # type: ignore[arg-type]  # the table below
    if options.password_env is not None and urlsplit(options.uri).password is not None:
        raise OptionError("option 'passwordEnv': the URI holds a password already")
    return options


def _by_name(raw: Mapping[str, str]) -> dict[str, str]:
    """Return the options under their own names, in whatever case they were given."""
    names = {name.lower(): name for name in _PARSERS}
    found: dict[str, str] = {}
    for key, text in raw.items():
        name = names.get(key.lower())
        if name is None:
            known = ", ".join(sorted(_PARSERS))
            raise OptionError(f"unknown option {key!r}; known: {known}")
        found[name] = text
    return found


def _position(name: str, text: str, stream: str) -> int:
    """Return the position that an option of offsets names."""
    try:
        return parse_position(text, stream)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None


def _uri(text: str) -> str:
    parse_uri(text)
    return text


def _stream(text: str) -> str:
    if not 0 < len(text.encode()) <= 255:
        raise ValueError("a name of 1 to 255 bytes")
    return text


def _variable(text: str) -> str:
    # The text is not quoted: who confuses the options may have put the password itself here.
    if not _ENVIRONMENT_NAME.fullmatch(text):
        raise ValueError("not a name of an environment variable")
    return text


def _transport(text: str) -> str:
    name = text.lower()
    if name not in TRANSPORTS:
        raise ValueError(f"no transport {text!r}; known: {', '.join(TRANSPORTS)}")
    return name


def _flag(text: str) -> bool:
    flags = {"true": True, "false": False}
    if text.lower() not in flags:
        raise ValueError(f"{text!r} is neither true nor false")
    return flags[text.lower()]


def _number(least: int, most: int) -> Callable[[str], int]:
    """Return a parser of numbers in a range."""

    def parse(text: str) -> int:
        digits = text.strip()
        if not (digits.isascii() and digits.isdigit() and least <= int(digits) <= most):
            raise ValueError(f"{text!r} is not a number from {least} to {most}")
        return int(digits)

    return parse


_OFFSETS_MAX: Final = 2**63 - 1

#: Each option: the attribute of `Options` that it sets, and how its text is read.  The positions
#: are read in `parse_options`, because they need the stream's name.
_PARSERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "uri": ("uri", _uri),
    "stream": ("stream", _stream),
    "passwordEnv": ("password_env", _variable),
    "startingOffsets": ("starting_offset", str),
    "endingOffsets": ("ending_offset", str),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", _number(1, _OFFSETS_MAX)),
    "maxRecordsPerPartition": ("max_records_per_partition", _number(1, _OFFSETS_MAX)),
    "minPartitions": ("min_partitions", _number(1, 100_000)),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "includeHeaders": ("include_headers", _flag),
    "transport": ("transport", _transport),
    "prefetch": ("prefetch", _number(1, 65_535)),
    "pollTimeoutMs": ("poll_timeout_ms", _number(1, 2**31 - 1)),
    "numRetries": ("num_retries", _number(0, 1000)),
}
OPTION_NAMES: Final = tuple(_PARSERS)
