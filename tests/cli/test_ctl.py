"""`leveret ctl`: what an operator does, through the Unix socket."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.client import BasicProperties
from leveret.client.blocking import connect
from leveret.errors import AmqpError
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.commands.command_process import Command

pytestmark = pytest.mark.commands


def lines(leveret: Command, *arguments: str) -> list[list[str]]:
    """The rows that a listing prints."""
    done = leveret("ctl", *arguments, "--format", "tsv")
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.decode().splitlines()]


def ctl(leveret: Command, *arguments: str, stdin: bytes = b"") -> str:
    """Run a command that must succeed; return what it prints."""
    done = leveret("ctl", *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_a_user_from_the_first_day_to_the_last(leveret: Command, broker: BrokerProcess) -> None:
    ctl(leveret, "add_vhost", "shop", "--description", "orders")
    ctl(leveret, "add_user", "ann", stdin=b"first\n")
    ctl(leveret, "set_user_tags", "ann", "monitoring", "own")
    ctl(leveret, "set_permissions", "ann", "^ann", ".*", ".*", "-p", "shop")
    ctl(leveret, "change_password", "ann", "second")
    assert ["ann", '["monitoring", "own"]'] in lines(leveret, "list_users")
    assert lines(leveret, "list_users")[0] == ["user", "tags"]
    assert ["ann"] in lines(leveret, "list_users", "user")
    assert ["orders", "shop"] in lines(leveret, "list_vhosts", "description", "name")
    assert ["shop", "^ann", ".*", ".*"] in lines(leveret, "list_user_permissions", "ann")
    assert ["ann", "^ann", ".*", ".*"] in lines(leveret, "list_permissions", "-p", "shop")
    where = broker.uri.replace("%2F", "shop")
    connect(where.replace("guest:guest", "ann:second")).close()
    with pytest.raises(AmqpError, match="ACCESS_REFUSED"):
        connect(where.replace("guest:guest", "ann:first"))
    ctl(leveret, "set_user_limits", "ann", '{"max-connections": 0}')
    with pytest.raises(AmqpError, match="user connection limit"):
        connect(where.replace("guest:guest", "ann:second"))
    ctl(leveret, "clear_user_limits", "ann", "all")
    ctl(leveret, "set_topic_permissions", "ann", "amq.topic", "^a", "^b", "-p", "shop")
    assert ["ann", "amq.topic", "^a", "^b"] in lines(
        leveret, "list_topic_permissions", "-p", "shop"
    )
    ctl(leveret, "clear_topic_permissions", "ann", "-p", "shop")
    ctl(leveret, "clear_permissions", "ann", "-p", "shop")
    ctl(leveret, "delete_user", "ann")
    ctl(leveret, "delete_vhost", "shop")
    assert "shop" not in [row[0] for row in lines(leveret, "list_vhosts")]


def test_policies_and_limits(leveret: Command, queue: str) -> None:
    ctl(leveret, "set_policy", "short", f"^{queue}", '{"max-length": 1}', "--priority", "3")
    policy = ["/", "short", f"^{queue}", "all", '{"max-length": 1}', "3"]
    assert policy in lines(leveret, "list_policies")
    assert ["3", "short"] in lines(leveret, "list_policies", "priority", "name")
    leveret("publish", queue, "a")
    leveret("publish", queue, "b")
    assert leveret("get", queue).stdout.strip() == b"b"
    assert leveret("get", queue).returncode == exits.NOTHING
    ctl(leveret, "clear_policy", "short")
    ctl(leveret, "set_operator_policy", "cap", "^cap", '{"expires": 60000}')
    assert "cap" in [row[1] for row in lines(leveret, "list_operator_policies")]
    ctl(leveret, "clear_operator_policy", "cap")
    ctl(leveret, "set_vhost_limits", '{"max-queues": 1000}')
    assert ["/", '{"max-queues": 1000}'] in lines(leveret, "list_vhost_limits")
    ctl(leveret, "clear_vhost_limits")
    ctl(leveret, "set_global_parameter", "note", '"x"')
    assert ["note", "x"] in lines(leveret, "list_global_parameters")
    ctl(leveret, "clear_global_parameter", "note")


def test_a_parameter_of_a_part_that_is_not_here(leveret: Command) -> None:
    done = leveret("ctl", "set_parameter", "shovel", "move", '{"src-queue": "a"}')
    assert done.returncode != 0
    assert b"component shovel not found" in done.stderr


def test_browsing_takes_nothing(leveret: Command, queue: str) -> None:
    for number in range(3):
        leveret("publish", queue, f"m{number}")
    printed = ctl(leveret, "browse_queue", queue, "--position", "1").splitlines()
    rows = [json.loads(line) for line in printed]
    assert [row["payload"] for row in rows] == ["m1", "m2"]
    assert rows[0]["routing_key"] == queue
    got = leveret("get", queue)
    assert got.stdout.strip() == b"m0"
    ctl(leveret, "purge_queue", queue)
    assert ctl(leveret, "browse_queue", queue) == ""


def test_what_was_acked_comes_back(leveret: Command, queue: str) -> None:
    name = queue + "-kept"
    age = "x-retain-acked=1h"
    leveret("declare", "queue", name, "--argument", age)
    before = str(int(time.time() * 1000) - 60_000)
    leveret("publish", name, "again")
    assert leveret("get", name).stdout.strip() == b"again"
    assert ctl(leveret, "rewind_queue", name, before) == "1 message put back\n"
    assert leveret("get", name).stdout.strip() == b"again"
    ctl(leveret, "delete_queue", name)


def test_dead_letters_go_back(leveret: Command, broker: BrokerProcess, queue: str) -> None:
    """Those of a queue and a reason, or all, in their order."""
    dead = queue + "-dead"
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.queue_declare(dead)
        for name in ("rejecting", "other"):
            arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
            channel.queue_declare(f"{queue}-{name}", arguments=arguments)
        for body, name in ((b"1", "rejecting"), (b"2", "other"), (b"3", "rejecting")):
            channel.publish(body, routing_key=f"{queue}-{name}")
            message = channel.get(f"{queue}-{name}")
            assert message is not None
            message.reject(requeue=False)
        back = (dead, f"{queue}-rejecting")
        chosen = ("--died-in", f"{queue}-rejecting", "--reason")
        assert ctl(leveret, "move_messages", *back, *chosen, "expired") == (
            f"0 messages moved to {back[1]}\n"
        )
        assert ctl(leveret, "move_messages", *back, *chosen, "rejected") == (
            f"2 messages moved to {back[1]}\n"
        )
        bodies = [got.body for _ in range(3) if (got := channel.get(back[1], no_ack=True))]
        assert bodies == [b"1", b"3"]
        assert ctl(leveret, "move_messages", dead, queue) == f"1 message moved to {queue}\n"
        for name in (dead, f"{queue}-rejecting", f"{queue}-other"):
            channel.queue_delete(name)


def test_a_move_says_what_it_did_not_do(
    leveret: Command, broker: BrokerProcess, queue: str
) -> None:
    with connect(broker.uri) as connection, connection.channel() as channel:
        for name, arguments in (
            ("source", {}),
            ("small", {"x-max-length": 3, "x-overflow": "reject-publish"}),
        ):
            channel.queue_declare(f"{queue}-{name}", arguments=arguments)
        move = ("ctl", "move_messages", f"{queue}-source")
        missing = leveret(*move, "nowhere")
        assert (missing.returncode, b"no queue 'nowhere'" in missing.stderr) == (65, True)
        channel.confirm_select()
        for _ in range(10_003):
            channel.publish_nowait(b"", routing_key=f"{queue}-source")
        channel.wait_for_confirms()
        full = leveret(*move, f"{queue}-small")
        assert full.returncode == 65
        assert b"0 messages moved before, and perhaps some of the next 1000" in full.stderr
        hidden = leveret(*move, f"{queue}-small", "--reason", "expired")
        assert hidden.returncode == 1
        assert b"0 messages moved to" in hidden.stderr
        assert b"not all were examined" in hidden.stderr
        for name in ("source", "small"):
            channel.queue_delete(f"{queue}-{name}")


def test_staging_queues_are_shown_by_list_sinks_alone(
    leveret: Command, broker: BrokerProcess, queue: str
) -> None:
    staged = queue + "-staged"
    arguments: dict[str, object] = {
        "x-staging-sink": queue,
        "x-staging-batch": 3,
        "x-staging-destination": "queue:results",
    }
    headers: dict[str, object] = {"x-staged-exchange": "", "x-staged-routing-key": queue}
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        channel.queue_declare(staged, durable=True, arguments=arguments)
        channel.publish(b"1234", "", staged, BasicProperties(headers=headers))
        (row,) = [row for row in lines(leveret, "list_sinks") if row[0] == queue]
        assert row[1:6] == ["queue:results", "", "0", "1", "1"]
        assert int(row[6]) > 4
        assert int(row[7]) >= 0
        assert row[8] == '["guest"]'
        listed = leveret("list", "queues", "name", "--format", "tsv").stdout.decode().split()
        assert queue in listed
        assert staged not in listed
        assert b"cannot be browsed" in leveret("ctl", "browse_queue", staged).stderr
        assert row[9] == ""
        commit = {"sink": queue, "destination": "queue:results", "batch": 3, "queues": [staged]}
        channel.publish(json.dumps(commit).encode(), "", "amq.leveret.commit", mandatory=True)
        while (message := channel.get(queue, no_ack=True)) is None:
            pass
        assert message.body == b"1234"
        (row,) = [row for row in lines(leveret, "list_sinks") if row[0] == queue]
        assert (row[2], row[9]) == ("3", "guest")
        while leveret("ctl", "delete_sink", queue).returncode != 0:
            pass  # until all of it is released
    assert queue not in [row[0] for row in lines(leveret, "list_sinks")]


def test_what_a_user_owns_is_listed_handed_over_and_removed(
    leveret: Command, broker: BrokerProcess, queue: str
) -> None:
    user, stream = unique("heir"), unique("stream")
    ctl(leveret, "add_user", user, "secret")
    with connect(broker.uri) as connection, connection.channel() as channel:
        channel.confirm_select()
        for destination in ("a", "b"):
            body = (
                f'{{"sink": "{queue}", "destination": "{destination}", "batch": 3, "queues": []}}'
            )
            channel.publish(body.encode(), "", "amq.leveret.commit")
        headers: dict[str, object] = {"x-publisher": "p/1", "x-publishing-id": 7}
        channel.publish(b"m", "", queue, BasicProperties(headers=headers))
        channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
        channel.qos(prefetch_count=1)
        wish: dict[str, object] = {"x-stream-consumer": "c/1"}
        with channel.consume(stream, arguments=wish, inactivity_timeout=0):
            pass
        owned = [
            (("list_sinks",), queue, (0, 9), ("delete_sink", queue), ("set_sink_owner", queue)),
            (
                ("list_publishers", queue), "p/1", (0, 2),
                ("delete_publisher", queue, "p/1"), ("set_publisher_owner", queue, "p/1"),
            ),
            (
                ("list_stream_consumers", stream), "c/1", (0, 1),
                ("delete_stream_consumer", stream, "c/1"),
                ("set_stream_consumer_owner", stream, "c/1"),
            ),
        ]  # fmt: skip
        ctl(leveret, "set_sink_owner", queue, user, "--destination", "b")
        rows = [row for row in lines(leveret, "list_sinks") if row[0] == queue]
        assert [(row[1], row[9]) for row in rows] == [("a", "guest"), ("b", user)]
        for listing, name, (at, owner), delete, give in owned:
            assert leveret("ctl", *give, "nobody").returncode != 0
            ctl(leveret, *give, user)
            rows = [row for row in lines(leveret, *listing) if row[at] == name]
            assert {row[owner] for row in rows} == {user}
            ctl(leveret, *delete)
            assert name not in [row[at] for row in lines(leveret, *listing)]
        channel.queue_delete(stream)
    ctl(leveret, "delete_user", user)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("add_user", "guest", "x"), exits.REFUSED, b"already exists"),
        (("add_user", "nobody"), exits.USAGE, b"the password is empty"),
        (("delete_user", "nobody"), exits.REFUSED, b"no user 'nobody'"),
        (("set_policy", "p", "(", '{"expires": 1}'), exits.REFUSED, b""),
        (("set_policy", "p", "x", "{"), exits.USAGE, b"DEFINITION is not JSON"),
        (
            ("rewind_queue", "q", "yesterday"),
            exits.USAGE,
            b"SINCE takes a time such as 2026-01-31T12:00:00Z",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    leveret: Command, arguments: tuple[str, ...], code: int, text: bytes
) -> None:
    done = leveret("ctl", *arguments)
    assert done.returncode == code
    assert text in done.stderr
    assert b"Traceback" not in done.stderr


def test_definitions_go_out_and_come_back(
    leveret: Command, broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "definitions.json"
    ctl(leveret, "add_vhost", "moved")
    ctl(leveret, "set_permissions", "guest", ".*", ".*", ".*", "-p", "moved")
    with connect(broker.uri.replace("%2F", "moved")) as connection:
        connection.channel().queue_declare("kept")
    ctl(leveret, "export_definitions", str(file))
    assert file.stat().st_mode & 0o077 == 0
    ctl(leveret, "delete_vhost", "moved")
    assert "1 queue" in ctl(leveret, "import_definitions", str(file))
    assert ctl(leveret, "import_definitions", str(file)) == "no change\n"
    assert ["moved", "kept"] in [
        line.split("\t")
        for line in leveret("list", "queues", "vhost", "name", "--format", "tsv")
        .stdout.decode()
        .splitlines()
    ]
    ctl(leveret, "delete_vhost", "moved")


def test_delayed_messages_are_listed_and_cancelled(leveret: Command, queue: str) -> None:
    delayed = ["--type", "x-delayed-message", "-a", "x-delayed-type=fanout"]
    assert leveret("declare", "exchange", "later", *delayed).returncode == 0
    leveret("declare", "binding", "later", queue)
    sent = leveret("publish", "k", "m", "-e", "later", "--header", "x-delay=3600000")
    assert sent.returncode == 0, sent.stderr
    (_, row) = lines(leveret, "list_delayed", "later")
    assert row[2:4] == ["later", "k"]
    ctl(leveret, "cancel_delayed", "later", row[0])
    assert lines(leveret, "list_delayed", "later")[1:] == []
    done = leveret("ctl", "cancel_delayed", "later", row[0])
    assert done.returncode == exits.REFUSED


def test_lists_have_rabbitmqctls_names(leveret: Command) -> None:
    leveret("declare", "queue", "listed")
    listed = leveret("ctl", "list_queues", "name", "messages", "--format", "tsv", "-p", "/")
    assert b"listed\t0\n" in listed.stdout
    for what in ("exchanges", "bindings", "connections", "users", "vhosts"):
        assert leveret("ctl", f"list_{what}").returncode == 0, what


@pytest.mark.parametrize(
    ("arguments", "missing"),
    [
        (("delete_queue", "nowhere"), "no queue 'nowhere' in vhost '/'"),
        (("purge_queue", "q", "-p", "nowhere"), "no vhost 'nowhere'"),
        (("clear_policy", "nowhere"), "no policy 'nowhere' in vhost '/'"),
        (("list_delayed", "nowhere"), "no exchange 'nowhere' in vhost '/'"),
        (("change_password", "nobody", "secret"), "no user 'nobody'"),
    ],
)
def test_what_is_missing_is_named(
    leveret: Command, arguments: tuple[str, ...], missing: str
) -> None:
    refused = leveret("ctl", *arguments)
    assert refused.returncode == exits.REFUSED
    assert missing in refused.stderr.decode()
