"""Finding a read's streams: the partitions of a super stream, or the names that match a pattern.

AMQP can check whether a stream exists, but cannot list streams.  So partitions are counted by
checking one after the other, which works with every broker.  A pattern needs the broker's HTTP
listener: Leveret's (`/api/streams`) or RabbitMQ's management plugin (`/api/queues`).

A topic in Kafka's options is the super stream of that name if it exists (an exchange, and a stream
with the number 0), else the stream of that name.

`StreamAccess` also opens the streams; tests pass their own.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from leveret.client import Parameters
from leveret.client.blocking import Connection
from leveret.errors import AccessRefused, NotFound
from leveret.limits import SPARK_LISTING_BYTES_MAX, SPARK_STREAMS_MAX
from leveret.spark.connection.connecting import (
    INTERRUPTIONS,
    address_of,
    interrupted,
    open_connection,
)
from leveret.spark.connection.http_link import (
    NoHttp,
    announced_address,
    forget_address,
    http_connection,
)
from leveret.spark.connection.retries import REAL_PAUSE, Pause
from leveret.spark.options.read import OptionError, Options
from leveret.spark.transport import Interrupted
from leveret.spark.transports import TransportOpener, open_transport

#: A function that returns the names of a read's streams.  It must be picklable.
StreamFinder = Callable[[Options], tuple[str, ...]]

#: The default port of RabbitMQ's management plugin, which AMQP does not report.
HTTP_PORT: Final = 15672

_OK: Final = 200

#: This status and above are the server's fault, for example a broker starting behind a proxy.
_SERVER_ERROR: Final = 500

#: The path does not exist.  RabbitMQ 3.10.8 answers 400 for unknown paths.
_UNKNOWN: Final = (400, 404)


def find_streams(options: Options) -> tuple[str, ...]:
    """Return the names of the streams that options select by pattern, topic or super stream.

    Raises: Interrupted; NotFound (404) if the super stream does not exist; OptionError if the
    broker refuses the listing, or if there are too many streams.
    """
    if options.directory is not None:
        return _in_directory(options)
    if options.super_stream is not None:
        return _partitions(options, options.super_stream)
    if options.kafka_topics:
        return _of_topics(options, _topics(options))
    assert options.stream_pattern is not None
    pattern = re.compile(options.stream_pattern)
    return _limited([name for name in sorted(_listed(options)) if pattern.fullmatch(name)])


def _limited(names: list[str]) -> tuple[str, ...]:
    if len(names) > SPARK_STREAMS_MAX:
        raise OptionError(f"{len(names)} streams exceed the limit of a read, {SPARK_STREAMS_MAX}")
    return tuple(names)


def _partitions(options: Options, super_stream: str) -> tuple[str, ...]:
    """Return the existing partitions `orders-0`, `orders-1` … of a super stream."""
    try:
        with open_connection(options.parameters(), "leveret spark streams") as connection:
            names = _counted(connection, super_stream)
    except INTERRUPTIONS as error:
        raise interrupted(error) from error
    if not names:
        place = address_of(options.parameters())
        raise NotFound(
            f"no super stream '{super_stream}' at {place}: there is no stream "
            f"'{super_stream}-0'. Declare it first, or correct its name in the options"
        )
    return _limited(names)


def _counted(connection: Connection, super_stream: str) -> list[str]:
    """Return the partitions of a super stream, stopping at one more than the limit."""
    names: list[str] = []
    while len(names) <= SPARK_STREAMS_MAX:
        name = f"{super_stream}-{len(names)}"
        channel = connection.channel()
        try:
            channel.queue_declare(name, passive=True)
        except NotFound:
            break
        channel.close()
        names.append(name)
    return names


# -- Kafka's topics --------------------------------------------------------------------------------


def _topics(options: Options) -> dict[str, list[str]]:
    """Return the streams of each topic.  Raises: Interrupted."""
    try:
        with open_connection(options.parameters(), "leveret spark streams") as connection:
            return {topic: _of_topic(connection, topic) for topic in options.kafka_topics}
    except INTERRUPTIONS as error:
        raise interrupted(error) from error


def _of_topic(connection: Connection, topic: str) -> list[str]:
    """Return the partitions of the super stream `topic`, or the stream of that name."""
    channel = connection.channel()
    try:
        channel.exchange_declare(topic, passive=True)
        channel.close()
    except NotFound:
        return [topic]
    except AccessRefused:
        pass  # the user may have permissions for the partitions only
    return _counted(connection, topic) or [topic]


def _of_topics(options: Options, topics: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return the streams that the options select from their topics.

    Raises: NotFound (404) for a partition that does not exist; OptionError for a stream that
    belongs to two topics.
    """
    names = [name for found in topics.values() for name in found]
    if twice := sorted(name for name in set(names) if names.count(name) > 1):
        raise OptionError(f"stream {twice[0]!r} is a topic of its own and a partition of another")
    if options.assigned is None:
        return _limited(names)
    places = {options.place_of(name): name for name in names}
    for topic, number in options.assigned:
        if (topic, number) not in places:
            raise NotFound(f"no partition {number} of '{topic}': it has {len(topics[topic])}")
    return _limited([places[place] for place in options.assigned])


# -- without a broker ------------------------------------------------------------------------------


def _in_directory(options: Options) -> tuple[str, ...]:
    """Return the streams that the options select from a data directory."""
    from leveret.spark.transports.store_directory import stream_names

    names = sorted(stream_names(options))
    if options.kafka_topics:
        return _of_topics(
            options,
            {t: [t] if t in names else _stored(names, t) or [t] for t in options.kafka_topics},
        )
    if options.stream_pattern is not None:
        return _limited([name for name in names if re.fullmatch(options.stream_pattern, name)])
    found = [] if options.super_stream is None else _stored(names, options.super_stream)
    if not found:
        raise NotFound(f"no super stream '{options.super_stream}' in {options.directory}")
    return _limited(found)


def _stored(names: list[str], super_stream: str) -> list[str]:
    """Return those of the given names that are partitions of a super stream."""
    numbered = (f"{super_stream}-{number}" for number in itertools.count())
    return [*itertools.takewhile(set(names).__contains__, numbered)]


# -- over HTTP -------------------------------------------------------------------------------------


def _listed(options: Options) -> list[str]:
    """Return the names of all streams of the vhost.  Raises: Interrupted; OptionError."""
    parameters = options.parameters()
    address = options.http_uri or _guessed_address(parameters)
    vhost = quote(parameters.vhost, safe="")
    found = _get(address, f"/api/streams/{vhost}", parameters)
    if found is None:  # no Leveret
        found = _get(address, f"/api/queues/{vhost}?columns=name,type", parameters)
        found = [one for one in _objects(found) if one.get("type") == "stream"]
    return [str(one["name"]) for one in _objects(found)]


def _objects(answer: object) -> list[dict[str, object]]:
    """Check that an answer is a list of objects with names.  Raises: OptionError."""
    if isinstance(answer, list) and all(isinstance(one, dict) and "name" in one for one in answer):
        return answer
    raise OptionError("the HTTP listener does not list streams: is it the broker's?")


def _guessed_address(parameters: Parameters) -> str:
    """Return the HTTP address that the broker reports, or its host with RabbitMQ's default port."""
    try:
        return announced_address(parameters)
    except NoHttp:
        host = f"[{parameters.host}]" if ":" in parameters.host else parameters.host
        return f"{'https' if parameters.tls else 'http'}://{host}:{HTTP_PORT}"


def _get(address: str, path: str, parameters: Parameters) -> object:
    """Return the JSON at a path, or None if the path does not exist.

    Raises: Interrupted; OptionError.
    """
    connection = http_connection(address, parameters)
    token = base64.b64encode(f"{parameters.username}:{parameters.password}".encode()).decode()
    try:
        connection.request("GET", path, headers={"Authorization": f"Basic {token}"})
        answer = connection.getresponse()
        body = answer.read(SPARK_LISTING_BYTES_MAX + 1)
    except (OSError, http.client.HTTPException) as error:
        # The broker may have restarted and may listen at another address.
        forget_address(parameters)
        cause = interrupted(error, address)
        raise Interrupted(
            f"{cause}. A pattern needs the list of streams, which AMQP does not provide: enable "
            "the HTTP listener of Leveret or RabbitMQ's management plugin, and set the option "
            "httpUri to its address"
        ) from error
    finally:
        connection.close()
    if answer.status in _UNKNOWN:
        return None
    if answer.status >= _SERVER_ERROR:
        raise Interrupted(f"{address} answered {answer.status} {answer.reason}")
    if answer.status != _OK:
        raise OptionError(f"{address} does not list the streams: {answer.status} {answer.reason}")
    if len(body) > SPARK_LISTING_BYTES_MAX:
        raise OptionError(f"{address} lists more than {SPARK_LISTING_BYTES_MAX} bytes of streams")
    try:
        return json.loads(body)
    except ValueError as error:
        raise OptionError(f"{address} does not list the streams: {error}") from None


# -- access ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StreamAccess:
    """Opens a stream, finds the streams that options select, and waits between retries."""

    open: TransportOpener = open_transport
    find: StreamFinder = find_streams
    pause: Pause = REAL_PAUSE


#: Access over the network.
STREAM_ACCESS: Final = StreamAccess()
