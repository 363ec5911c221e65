"""Data directories that older builds made open, and hold all that they held.

Each is opened as it was left by a stop and by a kill.  `make.py` made them, and wrote down what the
older build found: that must be found.  A field that came later is fine.
"""

from __future__ import annotations

import copy
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kept.declared import ODD
from kept.filling import body, commit, stage, uri_of
from kept.opening import HERE, IDS, KEPT, Kept, unpack
from kept.reading import await_due, differences, drain, look, take
from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect
from leveret.client.errors import Returned
from leveret.errors import AccessRefused, PreconditionFailed
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.commands.command_process import run_leveret
from support.http.http_api import Api


@pytest.fixture(params=KEPT, ids=IDS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    """A copy of each directory."""
    need_own_broker()
    name, end = request.param
    return unpack(name, end, tmp_path)


def publish(channel: Channel, queue: str, number: int, headers: dict[str, object]) -> None:
    """Publish a persistent message without waiting for its confirm."""
    made = BasicProperties(delivery_mode=2, headers=headers)
    channel.publish_nowait(body(queue, number), "", queue, made)


def count(channel: Channel, queue: str) -> int:
    """Return how many messages are ready."""
    return channel.queue_declare(queue, passive=True).message_count


def taken(channel: Channel, queue: str, wanted: int) -> list[bytes]:
    """Take so many messages and return their bodies."""
    return [message.body for message in take(channel, queue, wanted)]


# -- what is there ---------------------------------------------------------------------------------


def test_a_directory_is_kept_of_each_kind() -> None:
    assert ("06a8cc1", "stopped") in KEPT
    assert ("06a8cc1", "killed") in KEPT
    assert sum(path.stat().st_size for path in HERE.iterdir() if path.is_file()) < 2_000_000


def test_the_directory_is_whole(kept: Kept) -> None:
    checked = run_leveret("store", "check", kept.data)
    assert checked.returncode == 0, checked.stdout


def test_all_is_there_and_again_after_a_restart(kept: Kept) -> None:
    with kept.broker() as broker:
        await_due(broker)
        assert differences(kept.looked, look(broker)) == []
        broker.restart()
        assert differences(kept.looked, look(broker)) == []
        assert differences(kept.drained, drain(broker, kept.looked["queues"])) == []
        broker.restart()
        assert differences(drained(kept.looked), look(broker)) == []


def drained(looked: dict[str, Any]) -> dict[str, Any]:
    """Return what is to be seen when every queue was drained once."""
    after = copy.deepcopy(looked)
    for queue in after["queues"]:
        if queue["name"] == "retained":
            queue["messages_retained"] += queue["messages_ready"]
        # What a sink had promised to this queue took the room.
        if queue["type"] != "stream" and queue["name"] != "narrow":
            queue["messages_ready"] = queue["message_bytes_ready"] = 0
    for sink in after["vhosts"]["/"]["sinks"]:
        if sink["sink"] == "slow":
            sink["messages"] -= 5
    return after


def test_all_is_there_after_a_kill(kept: Kept) -> None:
    with kept.broker() as broker:
        await_due(broker)
        broker.crash()
        assert differences(kept.looked, look(broker)) == []
        found = drain(broker, kept.looked["queues"])
    # A kill makes every message count as redelivered; what they are, and their order, stays.
    names = ("count", "bodies")
    bodies = {queue: {name: row[name] for name in names} for queue, row in kept.drained.items()}
    assert differences(bodies, found) == []


@pytest.mark.parametrize(("name", "end"), KEPT[-1:], ids=IDS[-1:])
def test_what_is_gone_is_told(tmp_path: Path, name: str, end: str) -> None:
    need_own_broker()
    kept = unpack(name, end, tmp_path)
    with kept.broker() as broker:
        await_due(broker)
        with connect(uri_of(broker, "shop")) as connection:
            channel = connection.channel()
            channel.queue_purge("bills")
            channel.queue_unbind("bills", "orders", "bill.#")
        told = "".join(differences(kept.looked, look(broker)))
    assert "messages_ready: 0 for 14" in told
    assert "definitions/bindings" in told


# -- what goes on ----------------------------------------------------------------------------------


def test_what_was_taken_is_known_again(kept: Kept) -> None:
    with kept.broker() as broker:
        send_again(broker, taken_before=0)
        broker.restart()
        send_again(broker, taken_before=1)


def send_again(broker: BrokerProcess, taken_before: int) -> None:
    """Send all that has a number or a value once more, and one message that is new."""
    with connect(uri_of(broker, "/")) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for queue, last in (("numbered", 39), ("log", 29)):
            before = count(channel, queue)
            for name in ("first", "second"):
                for number in range(10, last + taken_before + 1):
                    again: dict[str, object] = {"x-publisher": name, "x-publishing-id": number}
                    publish(channel, queue, number, again)
            channel.wait_for_confirms()
            assert count(channel, queue) == before
            new: dict[str, object] = {
                "x-publisher": "first",
                "x-publishing-id": last + taken_before + 1,
            }
            publish(channel, queue, 999, new)
            # The second publisher is one behind: what it sends now is new too.
            publish(channel, queue, 999, new | {"x-publisher": "second"})
            channel.wait_for_confirms()
            assert count(channel, queue) == before + 2
        before = count(channel, "unique")
        for number in range(10 + taken_before, 61 + taken_before):
            publish(channel, "unique", number, {"order-id": number})
        channel.wait_for_confirms()
        assert count(channel, "unique") == before + 1


def test_what_was_acked_is_retained(kept: Kept) -> None:
    with kept.broker() as broker:
        path = "/api/queues/%2F/retained/rewind"
        with closing(Api(broker.data_dir / "management.sock")) as api:
            assert api.ask("POST", path, {"timestamp": 0}) == (200, {"messages": 6})
        broker.restart()
        with connect(uri_of(broker, "/")) as connection:
            found = taken(connection.channel(), "retained", 12)
    assert found == [body("retained", number) for number in range(12)]


def test_a_batch_in_flight_is_committed_once(kept: Kept) -> None:
    results = [body("totals 3", number) for number in range(25)]
    with kept.broker() as broker:
        with connect(uri_of(broker, "/")) as connection:
            channel = connection.channel()
            channel.confirm_select()
            assert count(channel, "results") == 0
            commit(channel, "totals", 3, ["totals.3"])
            assert taken(channel, "results", 25) == results
            commit_again(channel, "totals.3b")
        broker.restart()
        with connect(uri_of(broker, "/")) as connection:
            channel = connection.channel()
            channel.confirm_select()
            commit_again(channel, "totals.3c")


def commit_again(channel: Channel, queue: str) -> None:
    """Stage the third batch once more and commit it: nothing comes; the fourth one comes."""
    stage(channel, queue, "totals", 3, "results", [b"again"])
    commit(channel, "totals", 3, [queue])
    batch = 4 if queue.endswith("b") else 5
    stage(channel, f"totals.{batch}", "totals", batch, "results", [b"new"])
    commit(channel, "totals", batch, [f"totals.{batch}"])
    assert taken(channel, "results", 1) == [b"new"]
    assert count(channel, "results") == 0


def test_its_users_have_no_quotas(kept: Kept) -> None:
    """Unlike those of a directory that this build makes."""
    with kept.broker() as broker, closing(Api(broker.data_dir / "management.sock")) as api:
        status, rows, _ = api.answer("/api/quotas")
        assert status == 200
        assert isinstance(rows, list)
        users = [row for row in rows if row["of"] == "user"]
        assert {row["max"] for row in users if row["limit"] != "max-connections"} <= {None}
        assert api.answer("/api/global-parameters/default_user_limits")[0] == 404


def test_what_nobody_owned_is_its_first_users(kept: Kept) -> None:
    """Builds before owners recorded none: guest goes on, and mallory is kept out from then on."""
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    with kept.broker() as broker, closing(Api(broker.data_dir / "management.sock")) as api:
        assert owners(api) == {None}
        assert api.change("PUT", "/api/users/mallory", {"password": "mallory", "tags": ""}) == 201
        assert api.change("PUT", "/api/permissions/%2F/mallory", every) == 201
        with connect(uri_of(broker, "/")) as connection:
            channel = connection.channel()
            channel.confirm_select()
            commit(channel, "totals", 3, ["totals.3"])
        assert owners(api) == {None, "guest"}
        with connect(broker.uri_of("mallory", "mallory")) as connection:
            channel = connection.channel()
            channel.confirm_select()
            with pytest.raises(Returned, match="sink 'totals'"):
                commit(channel, "totals", 2**63 - 1, [])
        broker.restart()
        with connect(uri_of(broker, "/")) as connection:
            channel = connection.channel()
            channel.confirm_select()
            assert taken(channel, "results", 25) == [body("totals 3", one) for one in range(25)]
            commit_again(channel, "totals.3b")


def owners(api: Api) -> set[object]:
    """Return the owners of all sinks."""
    status, rows = api.ask("GET", "/api/sinks/%2F")
    assert status == 200
    assert isinstance(rows, list)
    return {row["owner"] for row in rows}


def test_a_batch_that_is_promised_is_released(kept: Kept) -> None:
    with kept.broker() as broker, connect(uri_of(broker, "/")) as connection:
        found = taken(connection.channel(), "narrow", 15)
    assert found == [body("slow", number) for number in range(15)]


def test_named_readers_go_on(kept: Kept) -> None:
    offsets = {
        (stream, row["name"]): row["offset"]
        for stream, rows in kept.looked["vhosts"]["/"]["readers"].items()
        for row in rows
    }
    assert len(offsets) >= 5
    with kept.broker() as broker, connect(uri_of(broker, "/")) as connection:
        for (stream, name), offset in offsets.items():
            channel = connection.channel()
            channel.qos(prefetch_count=1)
            wish: dict[str, object] = {"x-stream-consumer": name, "x-stream-offset": "first"}
            with channel.consume(stream, arguments=wish) as consumer:
                assert next(consumer).stream_offset == offset


def test_filters_find_what_was_published(kept: Kept) -> None:
    with kept.broker() as broker, connect(uri_of(broker, "/")) as connection:
        channel = connection.channel()
        channel.qos(prefetch_count=100)
        wish = {"x-stream-offset": "first", "x-stream-filter": "de"}
        numbers = [number for number in range(200) if number % 3 == 1 and number % 10]
        with channel.consume("log", arguments=wish) as consumer:
            found = [next(consumer).body for _ in numbers]
    assert found == [body("log", 100 + number) for number in numbers]


def test_a_hash_leads_where_it_led(kept: Kept) -> None:
    names = [f"hashed.{number}" for number in range(3)]
    with kept.broker() as broker, connect(uri_of(broker, "/")) as connection:
        channel = connection.channel()
        channel.confirm_select()
        counts = {name: count(channel, name) for name in names}
        assert sum(counts.values()) == 40
        for number in range(40):
            channel.publish(b"%d" % number, "spread", f"customer-{number}")
        for name in names:
            found = taken(channel, name, 2 * counts[name])
            assert found[: counts[name]] == found[counts[name] :]


def test_users_may_do_what_they_might(kept: Kept) -> None:
    with kept.broker() as broker:
        with connect(uri_of(broker, ODD, ODD)) as connection:
            channel = connection.channel()
            assert count(channel, ODD) == 10
            with pytest.raises(PreconditionFailed, match=r"U\+0009"):  # allowed, but a bad name
                channel.queue_declare("odd\tqueue of its own", exclusive=True)
        with connect(uri_of(broker, "shop", "ann")) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.publish(b"1", "amq.topic", "a.1")
            with pytest.raises(AccessRefused):
                channel.publish(b"2", "amq.topic", "b.1")
        with connect(uri_of(broker, "shop", "bob")) as connection:
            assert connection.channel().get("bills") is not None
            with pytest.raises(AccessRefused):
                connection.channel().queue_declare("mine")


# -- the comparison --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "found", "lines"),
    [
        ({"a": 1}, {"a": 1, "new": 2}, []),
        ({"a": 1}, {"new": 2}, ["/a: missing"]),
        ({"a": [1, 2]}, {"a": [1, 3]}, ["/a[1]: 3 for 2"]),
        ([{"a": 1}], [{"a": 1, "new": 2}], []),
        ([{"a": 1}], [{"a": 1}, {"a": 2}], [": 2 for 1: [{'a': 1}, {'a': 2}] for [{'a': 1}]"]),
        ({"a": True}, {"a": 1}, ["/a: 1 for True"]),
        ({"a": None}, {"a": {}}, ["/a: {} for None"]),
    ],
)
def test_the_comparison_passes_over_new_fields_only(
    expected: object, found: object, lines: list[str]
) -> None:
    assert differences(expected, found) == lines
