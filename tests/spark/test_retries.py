"""A broker that is away is asked again for two minutes, by reads and writes; a refusal is final."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leveret.errors import AmqpError, NotFound
from leveret.spark.columns.schema import ROW
from leveret.spark.connection.retries import BrokerUnreachable, ConnectionRetries, Pause, ask
from leveret.spark.offsets import from_json
from leveret.spark.options.read import Options, parse_options
from leveret.spark.stream.batch import BatchReader
from leveret.spark.stream.finder import StreamAccess
from leveret.spark.stream.planner import OffsetRange
from leveret.spark.stream.ranges import read_range
from leveret.spark.stream.stream import SparkStreamReader
from leveret.spark.transport import Interrupted
from leveret.spark.transports import open_transport
from leveret.spark.write.link import close_link, open_link
from leveret.spark.write.options import parse_write_options
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, need_own_broker
from support.node.pauses import StepPause
from support.spark.live_stream import LiveStream

URI = "amqp://user:secret@broker.example:5673/%2F"

#: Longer than the longest start after a kill that was seen (7 s), so that a few retries do not do.
AWAY_SECONDS = 60.0


def never(pause: Pause, **options: str) -> BrokerUnreachable:
    """Ask a broker that is away, and return what that ends with."""
    parsed = parse_options({"uri": URI, "stream": "s", **options})

    def question() -> None:
        raise Interrupted("ConnectionRefusedError: nobody listens")

    with pytest.raises(BrokerUnreachable) as caught:
        ask(parsed, "stream 's'", question, pause)
    return caught.value


def test_it_is_asked_for_two_minutes_in_steps_of_five_seconds() -> None:
    pause = StepPause()
    never(pause)
    assert sum(pause.waits) == 120.0
    assert pause.waits[:6] == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]


@pytest.mark.parametrize(
    ("options", "waits"),
    [
        ({"retryTimeoutMs": "2000"}, [0.5, 1.0, 0.5]),
        ({"retryTimeoutMs": "0"}, []),
        ({"numRetries": "0"}, []),
        ({"numRetries": "2"}, [0.5, 1.0]),
        ({"numRetries": "2", "retryTimeoutMs": "600"}, [0.5, pytest.approx(0.1)]),
        ({"numRetries": "1", "retryTimeoutMs": "60000"}, [0.5]),
    ],
)
def test_options_say_how_long_and_how_often(options: dict[str, str], waits: list[float]) -> None:
    pause = StepPause()
    never(pause, **options)
    assert pause.waits == waits


def test_a_number_alone_is_not_bounded_by_time() -> None:
    pause = StepPause()
    never(pause, numRetries="50")
    assert len(pause.waits) == 50
    assert sum(pause.waits) > 200


def test_the_error_names_address_cause_and_option_and_no_password() -> None:
    text = str(never(StepPause()))
    assert text.startswith("stream 's' at amqp://broker.example:5673: ConnectionRefusedError: ")
    assert "in 120.0 s, the limit of the option retryTimeoutMs: check that it runs" in text
    assert text.count("broker.example") == 1
    assert "secret" not in text
    assert "numRetries" in str(never(StepPause(), numRetries="1"))


def test_progress_gives_new_patience() -> None:
    pause = StepPause()
    retries = ConnectionRetries(parse_options({"uri": URI, "stream": "s"}), "it", pause)
    for _ in range(40):
        retries.failed(Interrupted("once"))
        pause.pass_by(100)
        retries.succeeded()
    assert pause.waits == [0.5] * 40


def test_who_has_given_up_inside_is_not_asked_again_outside() -> None:
    """A commit asks for a connection, which asks for itself: together two minutes, not four."""
    options = parse_options({"uri": URI, "stream": "s"})
    pause = StepPause()

    def question() -> None:
        raise Interrupted("as the test wants it")

    with pytest.raises(BrokerUnreachable):
        ask(options, "outer", lambda: ask(options, "inner", question, pause), pause)
    assert sum(pause.waits) == 120.0


# -- a broker that starts late ---------------------------------------------------------------------


@pytest.fixture
def late(tmp_path: Path, name: str) -> Iterator[tuple[LiveStream, StepPause]]:
    """A stream of ten messages on a broker that is down, and a pause in which it starts.

    It starts when somebody whom it refused has waited for a minute.
    """
    need_own_broker()
    with BrokerProcess(tmp_path / "broker") as broker:
        broker.flags = ["--port", str(broker.port)]
        live = LiveStream(broker.uri, name, f"{name}-exchange")
        live.declare()
        live.publish_numbers(0, 10)
        broker.kill()

        def start(_: float) -> None:
            if not broker.is_running():
                broker.start()

        yield live, StepPause(start, AWAY_SECONDS)


@pytest.mark.parametrize("transport", ["auto", "bulk", "amqp"])
def test_a_task_waits_for_it(late: tuple[LiveStream, StepPause], transport: str) -> None:
    live, pause = late
    options = parse_options(live.options | {"transport": transport})
    with open_transport(options, live.name, ROW) as way:
        batches = read_range(way, options, OffsetRange(live.name, 0, 10), pause)
        assert sum(batch.num_rows for batch in batches) == 10
    assert sum(pause.waits) >= AWAY_SECONDS


def planned_batch(options: Options, pause: Pause) -> int:
    ranges = BatchReader(options, ROW, StreamAccess(pause=pause)).partitions()
    return sum(one.length for one in ranges if isinstance(one, OffsetRange))


def planned_stream(options: Options, pause: Pause) -> int:
    reader = SparkStreamReader(options, ROW, StreamAccess(pause=pause))
    start: Any = reader.initialOffset()
    try:
        end = from_json(reader.latestOffset(start, reader.getDefaultReadLimit()))
        return sum(end.offsets.values())
    finally:
        reader.stop()


@pytest.mark.parametrize(("plan", "end"), [(planned_batch, 10), (planned_stream, 10)])
@pytest.mark.parametrize("selection", ["stream", "streamPattern"])
def test_the_driver_waits_for_it(
    late: tuple[LiveStream, StepPause],
    plan: Callable[[Options, Pause], int],
    end: int,
    selection: str,
) -> None:
    live, pause = late
    assert plan(parse_options({"uri": live.uri, selection: live.name}), pause) == end
    assert sum(pause.waits) >= AWAY_SECONDS


def test_a_write_waits_for_it(late: tuple[LiveStream, StepPause]) -> None:
    live, pause = late
    options = parse_write_options({"uri": live.uri, "stream": live.name})
    close_link(open_link(options, pause=pause))
    assert sum(pause.waits) >= AWAY_SECONDS


# -- what is no matter of patience -----------------------------------------------------------------


def no_pause(_: float) -> None:
    raise AssertionError("a refusal is not asked about again")


def refused(uri: str, transport: str, error: type[AmqpError]) -> str:
    """Return what a read of the broker is refused with, at once."""
    options = parse_options({"uri": uri, "stream": "nobody made this", "transport": transport})
    with (
        open_transport(options, "nobody made this", ROW) as way,
        pytest.raises(error) as caught,
    ):
        [*read_range(way, options, OffsetRange("nobody made this", 0, 1), StepPause(no_pause))]
    return str(caught.value)


@pytest.mark.parametrize("transport", ["auto", "bulk", "amqp"])
def test_what_the_broker_refuses_fails_at_once_and_names_it(broker: Broker, transport: str) -> None:
    need_own_broker()
    wrong = refused(broker.uri.replace("guest:guest", "guest:wrong"), transport, AmqpError)
    assert "ACCESS_REFUSED" in wrong
    assert "at amqp://127.0.0.1:" in wrong
    assert "user 'guest': check the user and the password in the option uri" in wrong
    missing = refused(broker.uri, transport, NotFound)
    assert "no stream 'nobody made this' in vhost '/' at " in missing
    assert missing.endswith(": declare it first, or correct its name in the options")
    other = refused(broker.uri.replace("%2F", "nowhere"), transport, AmqpError)
    assert "no vhost 'nowhere' at amqp://127.0.0.1:" in other


def test_a_write_with_a_wrong_password_fails_at_once(broker: Broker) -> None:
    uri = broker.uri.replace("guest:guest", "guest:wrong")
    options = parse_write_options({"uri": uri, "stream": "s"})
    with pytest.raises(AmqpError, match="ACCESS_REFUSED"):
        open_link(options, pause=StepPause(no_pause))


def test_an_interruption_names_the_address_of_the_listener(broker: Broker) -> None:
    """Over HTTP it is another one than the broker's own."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens, and nobody else can
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
        options = parse_options(
            {"uri": broker.uri, "stream": "s", "transport": "bulk", "httpUri": address}
        )
        with open_transport(options, "s", ROW) as way, pytest.raises(Interrupted) as caught:
            way.latest()
    assert str(caught.value).startswith(f"{address}: ConnectionRefusedError: ")
