"""The options of a read, parsed from Spark's text into one frozen object.

Names are case-insensitive, and are Kafka's names if Kafka has the option.  An unknown option is an
error, because a mistyped limit or offset would otherwise be silently ignored.  Options that do not
apply to the kind of read or its source, or that contradict each other, are also errors.

Invariant: passwords never appear in plans or checkpoints.  A password is in the URI, which `repr`
hides, or in the environment of driver and executors.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from leveret.client import Parameters, parse_uri
from leveret.limits import SPARK_PARTITION_RECORDS, SPARK_RETRY_MS
from leveret.spark.errors import SourceError
from leveret.spark.offsets import (
    EARLIEST,
    LATEST,
    Place,
    Positions,
    parse_moment,
    parse_moments,
    parse_offsets,
)
from leveret.spark.options import values
from leveret.spark.options.kafka_names import assigned, instead_of
from leveret.spark.options.trust import BrokerParameters, ClientTlsFiles

TRANSPORTS: Final = ("auto", "bulk", "amqp", "files")

#: The options that select the source.  Exactly one of them must be given.
SELECTIONS: Final = (
    "stream",
    "streams",
    "streamPattern",
    "superStream",
    "queue",
    "subscribe",
    "assign",
)

STARTS: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_LIMITS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)

#: The options of batch reads only, and of streaming reads only.
BATCH_ONLY: Final = ENDS
STREAM_ONLY: Final = _LIMITS

#: The options of streams only, and of queues only.
STREAMS_ONLY: Final = (
    *STARTS,
    "startingOffsetsByTimestampStrategy",
    *ENDS,
    "routingKeyFilter",
    "filterValues",
    "filterMatchUnfiltered",
    "transport",
    "httpUri",
)
QUEUE_ONLY: Final = ("ackMode", "spoolDir")

#: Aliases of options, in lower case.  Spark hides the value of `url` in plans, and its Kafka source
#: has `subscribePattern`.
_ALIASES: Final = {"url": "uri", "subscribepattern": "streamPattern"}

#: The options for TLS files, in the order of `ClientTlsFiles`.
TLS_FILES: Final = ("caFile", "certificateFile", "keyFile")

#: The options that apply to a broker, but not to a data directory.
_OF_BROKERS: Final = ("passwordEnv", "httpUri", *TLS_FILES)

#: The options that require one of some others.
_NEEDS: Final = {
    "keyFile": ("certificateFile",),
    "maxTriggerDelay": ("minOffsetsPerTrigger",),
    "startingOffsetsByTimestampStrategy": ("startingTimestamp", "startingOffsetsByTimestamp"),
    "filterMatchUnfiltered": ("filterValues",),
}

#: After this time a batch begins with less than `minOffsetsPerTrigger`; Kafka's default.
_TRIGGER_DELAY_MS: Final = 15 * 60_000


class OptionError(SourceError, ValueError):
    """An option is unknown, missing or wrong; the text names it."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a read; `None` for those that were not given."""

    uri: str = field(repr=False)
    stream: str | None = None
    streams: tuple[str, ...] | None = None
    stream_pattern: str | None = None
    super_stream: str | None = None
    queue: str | None = None
    topics: tuple[str, ...] | None = None
    assigned: tuple[Place, ...] | None = None
    password_env: str | None = None
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    http_uri: str | None = None
    starting: Positions | None = None
    ending: Positions | None = None
    timestamp_strategy: str = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = _TRIGGER_DELAY_MS
    max_bytes_per_trigger: int | None = None
    max_records_per_partition: int = SPARK_PARTITION_RECORDS
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    #: A word, or the names of columns.
    columns: str | tuple[str, ...] = "leveret"
    headers_wanted: bool | None = None
    copy: bool = False
    routing_key_filter: str | None = None
    filter_values: tuple[str, ...] | None = None
    filter_match_unfiltered: bool = False
    transport: str = "auto"
    prefetch: int = 2000
    poll_timeout_ms: int = 60_000
    retry_timeout_ms: int = SPARK_RETRY_MS
    num_retries: int | None = None
    ack_mode: str = "afterBatch"
    spool_dir: str | None = None
    given: tuple[str, ...] = field(default=(), repr=False)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The streams that the options name, or None if they must be looked up."""
        return (self.stream,) if self.stream is not None else self.streams

    @property
    def directory(self) -> str | None:
        """The data directory to read without a broker, or None."""
        return values.file_parts(self.uri)[0] if self.uri.startswith("file:") else None

    @property
    def file_vhost(self) -> str:
        """The vhost to read from the data directory."""
        return values.file_parts(self.uri)[1]

    @property
    def include_headers(self) -> bool:
        """Whether to include the column `headers`; by default not for `kafka` columns or copies."""
        return (
            self.columns != "kafka" and not self.copy
            if self.headers_wanted is None
            else self.headers_wanted
        )

    @property
    def title(self) -> str:
        """A short description of the source for logs."""
        selection = next(name for name in SELECTIONS if name in self.given)
        chosen = self.names or self.kafka_topics
        chosen = chosen or (self.stream_pattern or self.super_stream or self.queue or "",)
        return f"{selection} {', '.join(chosen)}"

    @property
    def kafka_topics(self) -> tuple[str, ...]:
        """The distinct topics that Kafka's options name."""
        return self.topics or tuple(dict.fromkeys(topic for topic, _ in self.assigned or ()))

    def place_of(self, stream: str) -> Place:
        """Return a stream's topic and partition, as Kafka names them.

        The topic of a partition is its super stream.  Any other stream is partition 0 of a topic of
        the same name.
        """
        if self.super_stream is not None:
            return self.super_stream, int(stream.removeprefix(f"{self.super_stream}-"))
        topics = self.kafka_topics
        topic, _, number = stream.rpartition("-")
        if stream not in topics and topic in topics and number.isdigit():
            return topic, int(number)
        return stream, 0

    def partition_of(self, stream: str) -> int:
        """Return a stream's number in its super stream, or 0 for any other stream."""
        return self.place_of(stream)[1]

    def positions_of(self, positions: Positions, streams: Iterable[str]) -> Positions:
        """Return positions by stream name.  Raises: ValueError if they do not fit the streams."""
        named = positions.by_name({stream: self.place_of(stream) for stream in streams})
        named.check(streams)
        return named

    def parameters(self) -> Parameters:
        """Return the connection's parameters, with the password from the environment.

        Raises: OptionError if the variable is not set in this process.
        """
        files = ClientTlsFiles(self.ca_file, self.certificate_file, self.key_file)
        return connection_parameters(self.uri, self.password_env, files)

    def for_batch(self) -> Options:
        """Check the options for a batch read.  Raises: OptionError for streaming-only options."""
        self._refuse(STREAM_ONLY, "a streaming read")
        if self.starting is not None and LATEST in self.starting:
            raise OptionError("option 'startingOffsets': a batch read cannot start at the latest")
        if self.ending is not None and EARLIEST in self.ending:
            raise OptionError("option 'endingOffsets': a batch read cannot end at the earliest")
        return self

    def for_stream(self) -> Options:
        """Check the options for a streaming read.  Raises: OptionError for batch-only options."""
        self._refuse(BATCH_ONLY, "a batch read")
        return self

    def _refuse(self, names: tuple[str, ...], where: str) -> None:
        for name in names:
            if name in self.given:
                raise OptionError(f"option {name!r} belongs to {where}")


def parse_options(raw: Mapping[str, str]) -> Options:
    """Parse the options.  Raises: OptionError."""
    if "provider" in raw:
        # Spark 4.3.0 passes these options when a table is created, and none when it is read.
        raise OptionError(
            "CREATE TABLE makes no readable table, because Spark stores no options for a Python "
            "source. Use CREATE TEMPORARY VIEW … USING leveret OPTIONS (…)"
        )
    texts = by_name(raw, _PARSERS)
    _check_together(texts)
    parsed: dict[str, object] = {}
    for name, text in texts.items():
        attribute, parse = _PARSERS[name]
        try:
            parsed[attribute] = parse(text)
        except ValueError as error:
            raise OptionError(f"option {name!r}: {error}") from None
    options = Options(**parsed, given=tuple(texts))  # type: ignore[arg-type]  # the table below
    _check_values(options)
    return options


def by_name(raw: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """Return the options under their canonical names, ignoring case.

    Raises: OptionError if an option is unknown or is given under two names.
    """
    names = {name.lower(): name for name in known}
    names |= {alias: name for alias, name in _ALIASES.items() if name in known}
    found: dict[str, str] = {}
    refused = [(key, instead_of(key)) for key in raw if key.lower() not in names]
    of_kafka = [f"option {key!r} belongs to Kafka: {text}" for key, text in refused if text]
    if of_kafka:
        raise OptionError(". ".join(of_kafka))
    for key, text in raw.items():
        name = names.get(key.lower())
        if name is None:
            near = difflib.get_close_matches(key.lower(), names, 1, cutoff=0.75)
            hint = f": did you mean {names[near[0]]}?" if near else "."
            raise OptionError(
                f"unknown option {key!r}{hint} The options are: {', '.join(sorted(known))}"
            )
        if name in found:
            raise OptionError(f"option {name!r} is given twice; {key!r} is another name for it")
        found[name] = text
    return found


def connection_parameters(
    uri: str, password_env: str | None, files: ClientTlsFiles
) -> BrokerParameters:
    """Return the connection's parameters, with the password from the environment and TLS files.

    Raises: OptionError if the variable is not set in this process.
    """
    parameters = BrokerParameters.of(parse_uri(uri), files)
    if password_env is None:
        return parameters
    password = os.environ.get(password_env)
    if password is None:
        raise OptionError(
            f"option 'passwordEnv': {password_env} is not set in the environment of "
            f"process {os.getpid()}; the driver and every executor need it"
        )
    return dataclasses.replace(parameters, password=password)


def check_password(uri: str, password_env: str | None) -> None:
    """Check that at most one password is given.  Raises: OptionError."""
    if password_env is not None and urlsplit(uri).password is not None:
        raise OptionError("option 'passwordEnv': the URI already contains a password")


def _check_together(texts: Mapping[str, str]) -> None:
    """Check the combination of the given options.  Raises: OptionError."""
    if "uri" not in texts:
        raise OptionError("option 'uri' is missing: amqp://user:password@host:5672/vhost")
    _check_one_of(texts, SELECTIONS, least=1)
    _check_one_of(texts, STARTS, least=0)
    _check_one_of(texts, ENDS, least=0)
    is_queue = "queue" in texts
    for name in STREAMS_ONLY if is_queue else QUEUE_ONLY:
        if name in texts:
            raise OptionError(f"option {name!r} belongs to {'streams' if is_queue else 'a queue'}")
    check_needed(texts, _NEEDS)


def check_needed(texts: Mapping[str, str], needs: Mapping[str, tuple[str, ...]]) -> None:
    """Check that each option has one of the options that it needs.  Raises: OptionError."""
    for name, needed in needs.items():
        if name in texts and not any(one in texts for one in needed):
            raise OptionError(f"option {name!r} has no effect without {' or '.join(needed)}")


def _check_one_of(texts: Mapping[str, str], names: tuple[str, ...], least: int) -> None:
    given = [name for name in names if name in texts]
    if len(given) > 1:
        raise OptionError(f"only one of these options can be given: {', '.join(given)}")
    if len(given) < least:
        raise OptionError(f"one of these options is missing: {', '.join(names)}")


def _check_values(options: Options) -> None:
    """Check the values against each other.  Raises: OptionError."""
    check_password(options.uri, options.password_env)
    is_directory = options.directory is not None
    if is_directory and options.queue is not None:
        raise OptionError("option 'queue': a queue is read from a broker, not from a directory")
    if is_directory and options.transport not in ("auto", "files"):
        raise OptionError(f"option 'transport': {options.transport} does not read a directory")
    if options.transport == "files" and not is_directory:
        raise OptionError("option 'transport': files reads a data directory: uri file:///path")
    if isinstance(options.columns, tuple) and options.headers_wanted is not None:
        raise OptionError("option 'includeHeaders': the option columns already names the columns")
    if options.copy and options.columns == "kafka":
        raise OptionError("option 'copy': Kafka's columns do not contain a whole message")
    for name in _OF_BROKERS if is_directory else ():
        if name in options.given:
            raise OptionError(f"option {name!r} belongs to a broker, not to a directory")
    if urlsplit(options.http_uri or "").scheme == "http" and parse_uri(options.uri).tls:
        raise OptionError(
            "option 'httpUri': http would send the password of an amqps URI unencrypted; name an "
            "https listener"
        )
    least, most = options.min_offsets_per_trigger, options.max_offsets_per_trigger
    if least is not None and most is not None and least > most:
        raise OptionError(
            f"option 'minOffsetsPerTrigger': {least} is more than maxOffsetsPerTrigger, {most}"
        )
    if options.names is not None:
        for names, positions in ((STARTS, options.starting), (ENDS, options.ending)):
            if positions is not None:
                given = next(name for name in names if name in options.given)
                try:
                    options.positions_of(positions, options.names)
                except ValueError as error:
                    raise OptionError(f"option {given!r}: {error}") from None


#: The attribute of `Options` that each option sets, and the function that parses it.
_PARSERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "uri": ("uri", values.source_uri),
    "stream": ("stream", values.name),
    "streams": ("streams", values.names),
    "streamPattern": ("stream_pattern", values.regular_expression),
    "superStream": ("super_stream", values.name),
    "queue": ("queue", values.name),
    "subscribe": ("topics", values.names),
    "assign": ("assigned", assigned),
    "passwordEnv": ("password_env", values.variable),
    "caFile": ("ca_file", values.file),
    "certificateFile": ("certificate_file", values.file),
    "keyFile": ("key_file", values.file),
    "httpUri": ("http_uri", values.http_uri),
    "startingOffsets": ("starting", parse_offsets),
    "startingTimestamp": ("starting", parse_moment),
    "startingOffsetsByTimestamp": ("starting", parse_moments),
    "startingOffsetsByTimestampStrategy": ("timestamp_strategy", values.word("error", "latest")),
    "endingOffsets": ("ending", parse_offsets),
    "endingTimestamp": ("ending", parse_moment),
    "endingOffsetsByTimestamp": ("ending", parse_moments),
    "maxOffsetsPerTrigger": ("max_offsets_per_trigger", values.number(1, values.OFFSET_MAX)),
    "minOffsetsPerTrigger": ("min_offsets_per_trigger", values.number(1, values.OFFSET_MAX)),
    "maxTriggerDelay": ("max_trigger_delay_ms", values.span_ms),
    "maxBytesPerTrigger": ("max_bytes_per_trigger", values.size_bytes),
    "maxRecordsPerPartition": ("max_records_per_partition", values.number(1, values.OFFSET_MAX)),
    "minPartitions": ("min_partitions", values.number(1, 100_000)),
    "failOnDataLoss": ("fail_on_data_loss", values.flag),
    "columns": ("columns", values.word_or_texts("leveret", "kafka")),
    "includeHeaders": ("headers_wanted", values.flag),
    "copy": ("copy", values.flag),
    "routingKeyFilter": ("routing_key_filter", values.name),
    "filterValues": ("filter_values", values.texts),
    "filterMatchUnfiltered": ("filter_match_unfiltered", values.flag),
    "transport": ("transport", values.word(*TRANSPORTS)),
    "prefetch": ("prefetch", values.number(1, 65_535)),
    "pollTimeoutMs": ("poll_timeout_ms", values.number(1, 2**31 - 1)),
    "retryTimeoutMs": ("retry_timeout_ms", values.number(0, 2**31 - 1)),
    "numRetries": ("num_retries", values.number(0, 1000)),
    "ackMode": ("ack_mode", values.word("afterBatch", "spool", "none")),
    "spoolDir": ("spool_dir", str),
}
OPTION_NAMES: Final = tuple(_PARSERS)
