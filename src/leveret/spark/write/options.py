"""The options of the sink: from Spark's text to one frozen object.

As with the source, an unknown option is an error, and so is one that contradicts another or has no
effect for this kind of write; a password stays in the URI or in the environment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from leveret.client import Parameters
from leveret.limits import (
    SHORT_STRING_BYTES_MAX,
    SPARK_RETRY_MS,
    SPARK_WRITE_STAGING_MS,
    SPARK_WRITE_TIMEOUT_MS,
    SPARK_WRITE_WINDOW,
)
from leveret.spark.options import values
from leveret.spark.options.read import (
    OptionError,
    by_name,
    check_needed,
    check_password,
    connection_parameters,
)
from leveret.spark.options.trust import ClientTlsFiles

#: The ways to keep a row from being written twice.
DEDUP: Final = ("auto", "staged", "rows", "none")

#: The destination of all rows: at most one of these is given.
DESTINATIONS: Final = ("exchange", "stream", "queue", "topic")

#: The options that Spark adds itself.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "queryname"})

#: Names of publishers and sinks get a partition's number as suffix, and those of staging queues get
#: more.
_OWN_NAME_BYTES_MAX: Final = 128

_DEAD_LETTER: Final = "dead-letter:"

#: The characters that the names of exchanges and queues keep in a place; a space ends a name.
_PLAIN: Final = "/!$&'()*+,;=:@#"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write; `None` for those that were not given."""

    uri: str = field(repr=False)
    password_env: str | None = None
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    exchange: str | None = None
    routing_key: str | None = None
    stream: str | None = None
    queue: str | None = None
    topic: str | None = None
    copy: bool = False
    dedup: str = "auto"
    publisher_name: str | None = None
    write_id: str | None = None
    write_batch: int = 0
    lower_batch: str = "fail"
    result_file: str | None = None
    unroutable: str = "fail"
    max_in_flight: int = SPARK_WRITE_WINDOW
    confirm_timeout_ms: int = SPARK_WRITE_TIMEOUT_MS
    staging_expiry_ms: int = SPARK_WRITE_STAGING_MS
    retry_timeout_ms: int = SPARK_RETRY_MS
    num_retries: int | None = None
    given: tuple[str, ...] = field(default=(), repr=False)

    @property
    def title(self) -> str:
        """The destination in a few words for logs."""
        for name in DESTINATIONS:
            if name in self.given:
                return f"{name} {self.destination or 'by default'}"
        return "where its columns say"

    @property
    def destination(self) -> str | None:
        """The exchange, stream, queue or topic of all rows."""
        if self.exchange is not None:
            return self.exchange
        return self.stream or self.queue or self.topic

    @property
    def place(self) -> str:
        """The destination as a part of the sink's identity: a string of at most 255 bytes.

        Streams and queues are one kind of place: the default exchange with their name.  If columns
        give the destination, the place is `columns`.
        """
        queue = self.stream or self.queue
        if queue is None and self.exchange == "":
            queue = self.routing_key
        if queue is not None:
            return _cut(f"queue:{quote(queue, _PLAIN)}")
        place = "columns"
        for name in ("exchange", "topic"):
            if name in self.given:
                place = f"{name}:{quote(self.destination or '', _PLAIN)}"
        if self.routing_key is not None:
            place += f" key:{quote(self.routing_key, _PLAIN)}"
        return _cut(place)

    @property
    def dead_letter_exchange(self) -> str | None:
        """The exchange for unroutable messages, if there is one."""
        if self.unroutable.startswith(_DEAD_LETTER):
            return self.unroutable.removeprefix(_DEAD_LETTER)
        return None

    def parameters(self) -> Parameters:
        """Return the parameters, with the password from the environment.  Raises: OptionError."""
        files = ClientTlsFiles(self.ca_file, self.certificate_file, self.key_file)
        return connection_parameters(self.uri, self.password_env, files)

    def for_batch(self) -> WriteOptions:
        """Return the options of a batch save.  Raises: OptionError."""
        if self.write_id is not None and self.dedup == "none":
            raise OptionError("option 'writeId': with dedup=none nothing is recognised again")
        if "writeBatch" in self.given and self.write_id is None:
            raise OptionError("option 'writeBatch' says nothing without writeId")
        return self

    def for_stream(self) -> WriteOptions:
        """Return the options of a streaming write.  Raises: OptionError for those of a batch."""
        for name in ("writeId", "writeBatch"):
            if name in self.given:
                raise OptionError(
                    f"option {name!r} belongs to a batch save; a streaming query has an id and "
                    "batches of its own"
                )
        return self


def parse_write_options(raw: Mapping[str, str]) -> WriteOptions:
    """Parse the options.  Raises: OptionError."""
    own = {key: text for key, text in raw.items() if key.lower() not in _SPARKS_OWN}
    texts = by_name(own, _PARSERS)
    if "uri" not in texts:
        raise OptionError("option 'uri' is missing: amqp://user:password@host:5672/vhost")
    given = [name for name in DESTINATIONS if name in texts]
    if len(given) > 1:
        raise OptionError(f"only one of these options can be given: {', '.join(given)}")
    if "routingKey" in texts and given and given[0] in ("stream", "queue"):
        raise OptionError(f"option 'routingKey': rows of option {given[0]!r} go by its name")
    check_needed(texts, {"keyFile": ("certificateFile",)})
    parsed: dict[str, object] = {}
    for name, text in texts.items():
        attribute, parse = _PARSERS[name]
        try:
            parsed[attribute] = parse(text)
        except ValueError as error:
            raise OptionError(f"option {name!r}: {error}") from None
    options = WriteOptions(**parsed, given=tuple(texts))  # type: ignore[arg-type]  # the table below
    check_password(options.uri, options.password_env)
    if options.copy and options.dedup == "rows":
        raise OptionError("option 'copy': dedup=rows would change the properties of each message")
    return options


def _cut(place: str) -> str:
    """Return a string of at most 255 bytes; a longer string ends in a digest of the whole."""
    if len(place) <= SHORT_STRING_BYTES_MAX:
        return place
    digest = hashlib.sha256(place.encode()).hexdigest()[:32]
    return f"{place[: SHORT_STRING_BYTES_MAX - 33]}-{digest}"


def _short(text: str) -> str:
    """Parse a name that may be empty."""
    if len(text.encode()) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"at most {SHORT_STRING_BYTES_MAX} bytes")
    return text


def _own_name(text: str) -> str:
    """Parse a name from which the sink makes other names."""
    if not 0 < len(text.encode()) <= _OWN_NAME_BYTES_MAX:
        raise ValueError(f"a name of 1 to {_OWN_NAME_BYTES_MAX} bytes")
    return text


def _unroutable(text: str) -> str:
    """Parse the treatment of unroutable messages."""
    word, colon, exchange = text.partition(":")
    word = word.strip().lower()
    if word in {"fail", "drop"} and not colon:
        return word
    if f"{word}:" == _DEAD_LETTER and exchange:
        return _DEAD_LETTER + _short(exchange)
    raise ValueError(f"{text!r} is none of: fail, drop, dead-letter:<exchange>")


#: Each option: the attribute of `WriteOptions` that it sets, and the function that parses it.
_PARSERS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "uri": ("uri", values.uri),
    "passwordEnv": ("password_env", values.variable),
    "caFile": ("ca_file", values.file),
    "certificateFile": ("certificate_file", values.file),
    "keyFile": ("key_file", values.file),
    "exchange": ("exchange", _short),
    "routingKey": ("routing_key", _short),
    "stream": ("stream", values.name),
    "queue": ("queue", values.name),
    "topic": ("topic", values.name),
    "copy": ("copy", values.flag),
    "dedup": ("dedup", values.word(*DEDUP)),
    "publisherName": ("publisher_name", _own_name),
    "writeId": ("write_id", _own_name),
    "writeBatch": ("write_batch", values.number(0, 2**31 - 1)),
    "lowerBatch": ("lower_batch", values.word("fail", "drop")),
    "resultFile": ("result_file", values.name),
    "unroutable": ("unroutable", _unroutable),
    "maxInFlight": ("max_in_flight", values.number(1, 1_000_000)),
    "confirmTimeoutMs": ("confirm_timeout_ms", values.number(1, 2**31 - 1)),
    "stagingExpiryMs": ("staging_expiry_ms", values.number(60_000, 2**31 - 1)),
    "retryTimeoutMs": ("retry_timeout_ms", values.number(0, 2**31 - 1)),
    "numRetries": ("num_retries", values.number(0, 1000)),
}
WRITE_OPTION_NAMES: Final = tuple(_PARSERS)
