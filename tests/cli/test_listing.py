"""`leveret list`: tables for people, JSON and tab-separated values for programs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.client import BasicProperties, blocking
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import Command, run_leveret

pytestmark = pytest.mark.commands

DELAYED = {"x-delayed-type": "fanout"}


def test_queues_are_listed_as_a_table(leveret: Command, queue: str) -> None:
    leveret("publish", queue, "x")
    lines = leveret("list", "queues").stdout.decode().splitlines()
    assert lines[0].split() == [
        "vhost",
        "name",
        "type",
        "messages_ready",
        "messages_unacknowledged",
        "consumers",
    ]
    assert ["/", queue, "classic", "1", "0", "0"] in [line.split() for line in lines]


def test_columns_are_chosen_and_may_lie_deep(leveret: Command, queue: str) -> None:
    leveret("publish", queue, "x")
    chosen = ["name", "durable", "message_stats.publish", "arguments"]
    listed = leveret("list", "queues", *chosen, "--format", "tsv").stdout.decode().splitlines()
    assert listed[0].split("\t") == chosen
    assert [queue, "true", "1", "{}"] in [line.split("\t") for line in listed]


def test_json_holds_everything_or_what_is_chosen(leveret: Command, queue: str) -> None:
    everything = json.loads(leveret("list", "queues", "--format", "json").stdout)
    (row,) = [row for row in everything if row["name"] == queue]
    assert row["message_stats"]["publish"] == 0
    chosen = json.loads(leveret("list", "queues", "name", "--format", "json").stdout)
    assert {"name": queue} in chosen


def test_exchanges_bindings_and_connections_are_listed(leveret: Command, queue: str) -> None:
    leveret("declare", "binding", "amq.topic", queue, "--key", "a.#")
    exchanges = json.loads(leveret("list", "exchanges", "--format", "json").stdout)
    assert "amq.topic" in {row["name"] for row in exchanges}
    bindings = leveret("list", "bindings", "-p", "/", "--format", "tsv").stdout.decode()
    assert f"/\tamq.topic\tqueue\t{queue}\ta.#\t{{}}" in bindings.splitlines()
    connections = leveret("list", "connections", "--format", "json")
    assert json.loads(connections.stdout) == []


def test_quotas_are_listed(leveret: Command, queue: str) -> None:
    assert leveret("ctl", "set_vhost_limits", '{"max-queues": 7000}').returncode == 0
    lines = leveret("list", "quotas", "--format", "tsv").stdout.decode().splitlines()
    assert lines[0].split() == ["of", "name", "limit", "used", "max", "refused"]
    row = [line.split("\t") for line in lines if line.startswith("vhost\t/\tmax-queues\t")]
    assert row[0][4] == "7000"
    assert int(row[0][3]) >= 1
    assert leveret("ctl", "clear_vhost_limits").returncode == 0


def test_the_account_of_memory_is_listed(leveret: Command) -> None:
    lines = leveret("list", "memory", "--format", "tsv").stdout.decode().splitlines()
    assert lines[0].split() == ["kind", "of", "bytes", "max"]
    rows = {line.split("\t")[0]: line.split("\t") for line in lines[1:]}
    assert int(rows["all"][3]) > int(rows["definitions"][3]) > int(rows["definitions"][2]) > 0
    assert rows["retained"][1] == "messages"


def test_names_cannot_break_a_line(leveret: Command, tmp_path: Path) -> None:
    name = "[red]tab\there\\"
    # No new name has a tab; definitions of before may.
    definitions = tmp_path / "definitions.json"
    definitions.write_text(json.dumps({"queues": [{"name": name, "vhost": "/"}]}))
    assert leveret("ctl", "import_definitions", definitions).returncode == 0
    listed = leveret("list", "queues", "name", "--format", "tsv").stdout.decode()
    assert "[red]tab\\there\\\\" in listed.splitlines()
    assert "[red]tab" in leveret("list", "queues", "name").stdout.decode()
    leveret("get", name)


def test_a_vhost_that_is_not_there_is_refused(leveret: Command) -> None:
    refused = leveret("list", "queues", "--vhost", "nowhere")
    assert refused.returncode == exits.REFUSED
    assert b"no vhost 'nowhere'" in refused.stderr


def test_a_column_that_is_not_there_is_refused(leveret: Command, queue: str) -> None:
    refused = leveret("list", "queues", "nam")
    assert refused.returncode == exits.USAGE
    assert b"unknown column 'nam'; did you mean name?" in refused.stderr
    assert b"messages_ready, " in refused.stderr
    assert b"message_stats.publish, " in refused.stderr


def test_no_broker_is_unavailable(leveret: Command, tmp_path: Path) -> None:
    refused = leveret("list", "queues", "--data-dir", tmp_path)
    assert refused.returncode == exits.UNAVAILABLE
    assert b"no broker answers at" in refused.stderr


def test_the_brokers_own_settings_file_leads_to_it(
    leveret: Command, broker: BrokerProcess, tmp_path: Path
) -> None:
    file = tmp_path / "leveret.toml"
    socket = broker.data_dir / "management.sock"
    file.write_text(f'management_socket = "{socket}"\n')
    listed = leveret("list", "exchanges", "--config", file, "--data-dir", tmp_path)
    assert listed.returncode == 0


@pytest.mark.parametrize("form", ["table", "tsv", "json"])
def test_an_empty_listing_is_no_failure(leveret: Command, form: str) -> None:
    assert leveret("list", "connections", "--format", form).returncode == 0


def test_the_broker_is_named_anywhere_on_the_line(broker: BrokerProcess) -> None:
    where = ["--data-dir", str(broker.data_dir)]
    for line in (
        [*where, "list", "exchanges", "name"],
        ["list", *where, "exchanges", "name"],
        ["list", "exchanges", *where, "name"],
        ["list", "exchanges", "name", f"--data-dir={broker.data_dir}"],
        [*where, "ctl", "list_vhosts"],
        ["ctl", *where, "list_vhosts"],
        ["ctl", "list_vhosts", *where],
        [*where, "store", "check", "--running"],
        ["store", "check", "--running", *where],
        ["store", "check", "--running", str(broker.data_dir)],
        [*where, "--uri", broker.uri, "declare", "queue", "named-anywhere"],
        ["--uri", broker.uri, "get", "named-anywhere"],
    ):
        done = run_leveret(*line)
        assert done.returncode == (1 if "get" in line else 0), (line, done.stderr)
    # Nearer to the command wins, and behind -- nothing is an option.
    assert run_leveret("--data-dir", "/nowhere", "list", "exchanges", *where).returncode == 0
    refused = run_leveret(*where, "ctl", "delete_vhost", "--", "--data-dir")
    assert refused.returncode == 65


def test_times_are_times(leveret: Command, broker: BrokerProcess) -> None:
    with blocking.connect(broker.uri) as connection:
        channel = connection.channel()
        channel.exchange_declare("timed", "x-delayed-message", arguments=DELAYED)
        channel.confirm_select()
        properties = BasicProperties(headers={"x-delay": 3_600_000})
        channel.publish(b"later", "timed", "", properties)
        listed = leveret("list", "connections", "connected_at", "--format", "json")
        delayed = leveret("ctl", "list_delayed", "timed", "--format", "json")
    began = datetime.fromisoformat(json.loads(listed.stdout)[0]["connected_at"])
    due = datetime.fromisoformat(json.loads(delayed.stdout)[0]["due"])
    assert timedelta(0) <= due - began - timedelta(hours=1) < timedelta(hours=1)
