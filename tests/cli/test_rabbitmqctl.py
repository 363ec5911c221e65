"""`leveret rabbitmqctl`: what scripts call RabbitMQ's tools with, and what they read of it."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.cli import ctl, exits
from leveret.cli.contexts.kept import Context, Contexts
from leveret.cli.rabbitmqctl.formats import cell
from leveret.cli.rabbitmqctl.lists import LISTS
from leveret.cli.rabbitmqctl.table import ASKING, ELSEWHERE, SAME
from leveret.cli.root import app, command_of
from leveret.client import blocking
from leveret.errors import ConnectionForced
from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import http_port

pytestmark = pytest.mark.commands

Run = Callable[..., str]

#: Commands of RabbitMQ's tools that scripts, images and charts call.
CALLED = (
    "add_user",
    "add_vhost",
    "alarms",
    "authenticate_user",
    "await_startup",
    "change_password",
    "check_alarms",
    "check_local_alarms",
    "check_port_connectivity",
    "check_port_listener",
    "check_running",
    "check_virtual_hosts",
    "clear_parameter",
    "clear_permissions",
    "clear_policy",
    "close_all_connections",
    "close_connection",
    "cluster_status",
    "delete_queue",
    "delete_user",
    "delete_vhost",
    "export_definitions",
    "import_definitions",
    "list_bindings",
    "list_channels",
    "list_connections",
    "list_consumers",
    "list_exchanges",
    "list_parameters",
    "list_permissions",
    "list_policies",
    "list_queues",
    "list_user_permissions",
    "list_users",
    "list_vhosts",
    "listeners",
    "memory_breakdown",
    "node_health_check",
    "ping",
    "purge_queue",
    "server_version",
    "set_parameter",
    "set_permissions",
    "set_policy",
    "set_user_tags",
    "set_vhost_limits",
    "status",
    "version",
)


def code_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run a command in this process; return its code, and what it printed on both streams."""
    with pytest.raises(SystemExit) as end:
        app(["rabbitmqctl", *words], prog_name="leveret")
    told = capsys.readouterr()
    return int(str(end.value.code)), told.out, told.err


@pytest.fixture
def run(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs a command that succeeds, and returns what it printed."""
    monkeypatch.setenv("LEVERET_DATA_DIR", str(broker.data_dir))

    def run(*words: str) -> str:
        code, out, err = code_of(capsys, *words)
        assert code == 0, err
        return out

    return run


def rows(told: str) -> list[list[str]]:
    """The fields of the lines."""
    return [line.split("\t") for line in told.splitlines()]


# -- the table -------------------------------------------------------------------------------------


def test_what_scripts_call_is_there_and_is_listed_by_help(run: Run) -> None:
    told = run("help")
    assert [name for name in CALLED if name not in {*SAME, *ASKING}] == []
    assert [name for name in {*SAME, *ASKING} if f"\n  {name}\n" not in told] == []
    assert not {*SAME, *ASKING} & ELSEWHERE.keys()


def test_what_is_the_same_is_a_command_of_ctl() -> None:
    commands = command_of(ctl.app()).commands  # type: ignore[union-attr]
    assert [name for name in SAME if name not in commands] == []


# -- lists -----------------------------------------------------------------------------------------


def test_queues_are_listed_as_scripts_read_them(run: Run, queue: str) -> None:
    told = run("-q", "list_queues", "-p", "/", "name", "messages")
    assert told.startswith("name\tmessages\n")
    assert [queue, "0"] in rows(told)
    for silent in (
        ["-s", "list_queues", "name"],
        ["list_queues", "-q", "--no-table-headers", "name"],
        ["list_queues", "--silent", "name", "--vhost=/"],
    ):
        told = run(*silent)
        assert [queue] in rows(told)
        assert "name" not in told.splitlines()
    loud = run("list_queues", "-t", "5").splitlines()
    assert loud[:3] == [
        "Timeout: 5.0 seconds ...", "Listing queues for vhost / ...", "name\tmessages",
    ]  # fmt: skip


def test_an_empty_list_has_no_names_of_columns(run: Run) -> None:
    assert run("-q", "list_policies") == ""
    assert run("-q", "list_policies", "--formatter", "csv") == ""
    assert json.loads(run("list_policies", "--formatter", "json")) == []


def test_programs_get_json_or_csv_without_a_word_before_it(run: Run, queue: str) -> None:
    found = json.loads(run("list_queues", "name", "arguments", "durable", "--formatter=json"))
    assert {"name": queue, "arguments": {}, "durable": True} in found
    told = list(csv.reader(io.StringIO(run("list_queues", "--formatter", "csv"))))
    assert told[0] == ["name", "messages"]
    assert [queue, "0"] in told
    pretty = run("-q", "list_queues", "--formatter", "pretty_table").splitlines()
    assert pretty[0].split() == ["name", "messages"]


@pytest.mark.parametrize("name", LISTS)
def test_every_list_has_its_columns(run: Run, broker: BrokerProcess, name: str, queue: str) -> None:
    run("set_topic_permissions", "guest", "amq.topic", ".*", ".*")
    run("set_policy", "p", "^no$", '{"max-length": 5}')
    run("set_operator_policy", "p", "^no$", '{"max-length": 5}')
    run("set_global_parameter", "g", '"x"')
    run("set_vhost_limits", '{"max-queues": 5000}')
    run("set_user_limits", "guest", '{"max-channels": 500}')
    listing = LISTS[name]
    argument = ["guest"] if "{0}" in listing.path else []
    with (
        blocking.connect(broker.uri) as connection,
        connection.channel() as channel,
        channel.consume(queue, inactivity_timeout=0),
    ):
        told = rows(run("-q", name, *argument))
        assert told[0] == list(listing.columns)
        assert len(told) > 1
        assert all(len(row) == len(told[0]) for row in told)
        if listing.choosing:
            every = [*listing.columns, *listing.more, *listing.named]
            told = rows(run("-q", name, *every))
            assert told[0] == every
            assert len(told) > 1


def test_a_column_that_is_not_there_is_told(
    run: Run, capsys: pytest.CaptureFixture[str], queue: str
) -> None:
    code, _, err = code_of(capsys, "list_queues", "mesages")
    assert code == exits.USAGE
    assert "no column 'mesages'; known columns: name, messages, " in err
    # What the API has beside it may be asked for.
    assert rows(run("-q", "list_queues", "message_stats.publish"))[0] == ["message_stats.publish"]


def test_values_are_written_as_erlang_writes_them() -> None:
    values: list[object] = [None, True, 5, "a", [], ["a", "b"], {}]
    assert list(map(cell, values)) == ["", "true", "5", "a", "[]", "[a, b]", "[]"]
    arguments = {"x-queue-type": "quorum", "x-max-length": 5, "n": {"a": [1, "b"], "c": None}}
    assert cell(arguments) == (
        '[{"x-queue-type","quorum"},{"x-max-length",5},{"n",[{"a",[1,"b"]},{"c",undefined}]}]'
    )


# -- changes ---------------------------------------------------------------------------------------


def test_a_script_sets_a_broker_up_and_takes_it_down(
    run: Run, broker: BrokerProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run("add_vhost", "shop")
    run("add_user", "ann", "secret")
    run("set_user_tags", "ann", "monitoring", "policymaker")
    assert ["ann", "[monitoring, policymaker]"] in rows(run("-q", "list_users"))
    run("set_permissions", "-p", "shop", "ann", "^a", ".*", ".*")
    assert rows(run("-q", "list_permissions", "-p", "shop"))[1] == ["ann", "^a", ".*", ".*"]
    assert rows(run("-q", "list_user_permissions", "ann"))[1] == ["shop", "^a", ".*", ".*"]
    policy = ["ttl", "^t", '{"message-ttl":5}', "--priority", "2", "--apply-to", "queues"]
    run("-p", "shop", "set_policy", *policy)
    assert rows(run("-q", "list_policies", "-p", "shop"))[1] == [
        "shop", "ttl", "^t", "queues", '{"message-ttl":5}', "2",
    ]  # fmt: skip
    with blocking.connect(broker.uri_of("ann", "secret").replace("%2F", "shop")) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("a")
        channel.publish(b"x", "", "a")
        code, _, err = code_of(capsys, "delete_queue", "a", "-p", "shop", "--if-empty")
        assert (code, "not empty" in err) == (exits.REFUSED, True)
        run("purge_queue", "a", "-p", "shop")
        run("delete_queue", "a", "-p", "shop", "-e", "-u")
    file = tmp_path / "definitions.json"
    run("export_definitions", str(file))
    assert json.loads(run("export_definitions", "-")) == json.loads(file.read_text())
    run("clear_policy", "ttl", "-p", "shop")
    run("clear_permissions", "-p", "shop", "ann")
    run("change_password", "ann", "other")
    run("delete_user", "ann")
    run("delete_vhost", "shop")
    assert "1 vhost, 1 user, 1 permission, 1 policy" in run("import_definitions", str(file))
    run("delete_vhost", "shop")
    run("delete_user", "ann")
    # Each change is in the log, with who and what.
    for what in ("PUT /api/users/ann", "DELETE /api/users/ann", "PUT /api/policies/shop/ttl"):
        line = broker.expect_line(f"administrative change: {what} by ")
        assert f"(uid {os.getuid()}, process {os.getpid()}) at the management socket" in line


def test_a_password_is_a_users_or_is_not(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run("add_user", "carl", "first")
    assert run("authenticate_user", "carl", "first") == 'Authenticating user "carl" ...\nSuccess\n'
    monkeypatch.setattr("sys.stdin", io.StringIO("first\n"))
    assert run("-q", "authenticate_user", "carl") == "Success\n"
    # Who has a tag, and permissions, is no other case.
    assert run("-q", "authenticate_user", "guest", "guest") == "Success\n"
    run("change_password", "carl", "second")
    for user, password in (("carl", "first"), ("nobody", "first")):
        code, out, err = code_of(capsys, "-q", "authenticate_user", user, password)
        assert (code, out) == (exits.REFUSED, "")
        assert err == f'leveret: failed to authenticate user "{user}"\n'
    assert code_of(capsys, "authenticate_user")[0] == exits.USAGE
    run("delete_user", "carl")


def test_definitions_come_from_standard_input(
    run: Run, broker: BrokerProcess, tmp_path: Path
) -> None:
    run("add_vhost", "piped")
    file = tmp_path / "definitions.json"
    run("export_definitions", str(file))
    run("delete_vhost", "piped")
    done = subprocess.run(
        [sys.executable, "-m", "leveret", "rabbitmqctl", "import_definitions"],
        input=file.read_bytes(),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr
    assert b"1 vhost" in done.stdout
    run("delete_vhost", "piped")


def test_connections_are_closed_by_the_id_that_is_listed(run: Run, broker: BrokerProcess) -> None:
    with blocking.connect(broker.uri, recover=False) as connection:
        channel = connection.channel()
        (pid, name) = rows(run("-s", "list_connections", "pid", "name"))[0]
        assert re.fullmatch(r"<[0-9.:]+->[0-9.:]+>", pid)
        assert pid == f"<{name.replace(' ', '')}>"
        (of, where) = rows(run("-s", "list_channels", "pid", "connection"))[0]
        assert (where, of) == (pid, pid[:-1] + "(1)>")
        run("close_connection", pid, "go to sleep, \u00e9")
        with pytest.raises(ConnectionForced, match="go to sleep, \u00e9"):
            channel.queue_declare("never")
    assert broker.expect_line("administrative change: DELETE /api/connections/")


def test_all_connections_of_a_vhost_are_closed(
    run: Run, broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        blocking.connect(broker.uri, recover=False) as one,
        blocking.connect(broker.uri, recover=False) as other,
    ):
        assert run("close_all_connections", "bye", "--limit", "1") == "1 connection closed\n"
        slowly = ("close_all_connections", "bye", "--per-connection-delay", "1")
        assert run(*slowly) == "1 connection closed\n"
        for connection in (one, other):
            with pytest.raises(ConnectionForced, match="bye"):
                connection.channel()
    code, _, err = code_of(capsys, "close_all_connections", "--global", "two\nlines")
    assert (code, "a line of at most" in err) == (exits.USAGE, True)


# -- checks ----------------------------------------------------------------------------------------


def test_checks_pass(run: Run, broker: BrokerProcess) -> None:
    for name in (
        "ping", "check_running", "check_alarms", "check_local_alarms", "check_virtual_hosts",
        "check_port_connectivity", "node_health_check", "alarms", "listeners", "is_running",
        "check_if_node_is_quorum_critical", "cluster_status", "memory_breakdown", "await_startup",
    ):  # fmt: skip
        run("-q", name)
    run("check_port_listener", str(broker.port))
    run("check_protocol_listener", "amqp")
    assert "fully booted and running" in run("check_running")
    assert run("ping").splitlines()[-1] == "Ping succeeded"
    assert run("version") == run("server_version") == "3.13.7\n"


def test_checks_fail(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = code_of(capsys, "check_port_listener", "1")
    assert (code, "No active listener" in err) == (exits.UNAVAILABLE, True)
    for nobody in ("ping", "check_running", "status"):
        assert code_of(capsys, nobody, "--data-dir", str(tmp_path))[0] == exits.UNAVAILABLE
    assert code_of(capsys, "version", "--data-dir", str(tmp_path))[:2] == (0, "3.13.7\n")
    settings = {"disk_free_bytes_min": "900TB", "rabbitmq_version": "4.3.6"}
    with BrokerProcess(tmp_path, settings=settings):
        monkeypatch.setenv("LEVERET_DATA_DIR", str(tmp_path))
        for alarmed in ("check_alarms", "check_local_alarms", "node_health_check"):
            code, _, err = code_of(capsys, alarmed)
            assert (code, "alarms in effect" in err) == (exits.UNAVAILABLE, True)
        assert json.loads(run("alarms", "--formatter", "json"))["local"] == ["disk"]
        assert run("version") == run("server_version") == "4.3.6\n"
        status = json.loads(run("status", "--formatter", "json"))
        assert status["rabbitmq_version"] == "4.3.6"
        cluster = json.loads(run("cluster_status", "--formatter", "json"))
        assert [one["rabbitmq_version"] for one in cluster["versions"].values()] == ["4.3.6"]


def test_a_status_for_programs_has_rabbitmqs_names(run: Run, broker: BrokerProcess) -> None:
    found = json.loads(run("status", "--formatter", "json"))
    assert found["pid"] == broker.pid
    assert found["alarms"] == []
    assert found["totals"]["virtual_host_count"] >= 1
    assert broker.port in {one["port"] for one in found["listeners"]}
    assert f"{broker.pid}, up " in run("status")
    cluster = json.loads(run("cluster_status", "--formatter", "json"))
    assert cluster["running_nodes"] == cluster["disk_nodes"]


def test_a_start_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_DATA_DIR", str(tmp_path))
    assert code_of(capsys, "await_startup", "-t", "0")[0] == exits.UNAVAILABLE
    process = BrokerProcess(tmp_path)
    starting = threading.Thread(target=process.start)
    starting.start()
    try:
        assert code_of(capsys, "await_startup")[0] == 0
    finally:
        starting.join()
        process.kill()


# -- which broker, and what is refused -------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("", exits.USAGE, ""),
        ("frobnicate", exits.USAGE, "no such command 'frobnicate'"),
        ("list_queue", exits.USAGE, "did you mean 'list_queues'?"),
        ("delete_queu x", exits.USAGE, "did you mean 'list_queues'?"),
        ("stop_app", exits.USAGE, "has no counterpart here: use the service manager"),
        ("list_queues --formatter erlang", exits.USAGE, "known formats: table, "),
        ("list_queues -p", exits.USAGE, "-p needs a value"),
        ("list_queues -t soon", exits.USAGE, "--timeout 'soon'"),
        ("list_users name", exits.USAGE, "list_users takes no arguments"),
        ("list_user_permissions", exits.USAGE, "takes one argument"),
        ("check_port_listener", exits.USAGE, "takes one argument"),
        ("add_user ann pw -p /", exits.USAGE, "add_user takes no vhost (-p)"),
        ("add_user", exits.USAGE, "missing argument 'USER'"),
        ("delete_vhost a b", exits.USAGE, "unexpected extra argument"),
        ("-n rabbit@elsewhere list_users", exits.CONFIG, "unknown broker"),
        ("list_queues -p nowhere", exits.REFUSED, "no vhost 'nowhere'"),
    ],
)
def test_a_line_that_cannot_be_is_refused(
    run: Run, capsys: pytest.CaptureFixture[str], line: str, code: int, said: str,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found, out, err = code_of(capsys, *shlex.split(line))
    assert (found, said in err) == (code, True), err
    assert "Traceback" not in out + err


def test_a_dry_run_changes_nothing(run: Run) -> None:
    assert run("--dry-run", "add_user", "nobody", "secret") == "would run add_user\n"
    assert "nobody" not in run("-q", "list_users")


def test_a_node_is_this_machine_or_a_context(
    run: Run, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert "guest" in run("-q", "-n", "rabbit@localhost", "list_users")
    monkeypatch.delenv("LEVERET_DATA_DIR")
    contexts = Contexts.load()
    api = f"http://127.0.0.1:{http_port(broker)}"
    contexts.by_name["rabbit@elsewhere"] = Context(api=api)
    contexts.save()
    assert "guest" in run("list_users", "-q", "--node", "rabbit@elsewhere")
    assert "guest" in run("--api", api, "list_users", "-q")


def test_what_begins_with_a_dash_is_an_argument_behind_two(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    run("add_vhost", "--", "-q")
    assert ["-q"] in rows(run("-q", "list_vhosts"))
    run("delete_vhost", "--", "-q")
    assert ["-q"] not in rows(run("-q", "list_vhosts"))


def test_the_alias_of_a_shell_is_enough(broker: BrokerProcess, queue: str) -> None:
    python = shlex.quote(sys.executable)
    script = (
        "shopt -s expand_aliases\n"
        f"alias rabbitmqctl='{python} -m leveret rabbitmqctl'\n"
        "rabbitmqctl -q list_queues -p / name messages\n"
    )
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "LEVERET_DATA_DIR": str(broker.data_dir)},
    )
    assert done.returncode == 0, done.stderr
    assert [queue, "0"] in rows(done.stdout)
