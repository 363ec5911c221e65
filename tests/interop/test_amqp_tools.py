"""Debian's amqp-tools (rabbitmq-c, a C client) against a running broker."""

from __future__ import annotations

import shutil
import subprocess
import urllib.parse

import pytest

from support.brokers.brokers import Broker
from support.wire import raw

TOOLS = [f"amqp-{tool}" for tool in ("declare-queue", "publish", "get", "consume", "delete-queue")]
MISSING = [tool for tool in TOOLS if shutil.which(tool) is None]

pytestmark = pytest.mark.skipif(
    bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (Debian's package amqp-tools)"
)

SECONDS_MAX = 120


class Tools:
    """Runs the tools against the broker."""

    def __init__(self, broker: Broker) -> None:
        parts = urllib.parse.urlsplit(broker.uri)
        self.where = [f"--server={parts.hostname}", f"--port={parts.port}"]

    def command(self, tool: str, *arguments: str) -> list[str]:
        """The command line; the address stands before what amqp-consume runs."""
        return [f"amqp-{tool}", *self.where, *arguments]

    def run(self, tool: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run a tool to its end."""
        command = self.command(tool, *arguments)
        return subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=SECONDS_MAX
        )

    def output(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """What a tool prints; it must end well."""
        done = self.run(tool, *arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def tools(broker: Broker) -> Tools:
    """The tools."""
    return Tools(broker)


def test_declare_publish_get_delete(tools: Tools, name: str) -> None:
    assert tools.output("declare-queue", "-q", name).strip() == name
    tools.output("publish", "-r", name, "-b", "from the option")
    tools.output("publish", "-r", name, "-p", "-C", "text/plain", stdin="from\nstdin")
    tools.output("publish", "-r", name, "-l", stdin="line 1\nline 2\n")
    got = [tools.output("get", "-q", name) for _ in range(4)]
    assert got == ["from the option", "from\nstdin", "line 1\n", "line 2\n"]
    assert tools.run("get", "-q", name).returncode != 0  # empty
    assert tools.output("delete-queue", "-q", name).strip() == "0"


def test_durable_queue_and_server_name(tools: Tools, name: str) -> None:
    tools.output("declare-queue", "-d", "-q", name)
    tools.output("publish", "-r", name, "-p", "-b", "m")
    assert tools.output("delete-queue", "-q", name).strip() == "1"
    generated = tools.output("declare-queue", "-q", "").strip()
    assert generated.startswith("amq.gen-")
    tools.output("delete-queue", "-q", generated)


def test_consume_a_queue(tools: Tools, name: str) -> None:
    """With acks one by one; what fails in the command is not acked."""
    tools.output("declare-queue", "-q", name)
    tools.output("publish", "-r", name, "-l", stdin="a\nb\nc\n")
    assert tools.output("consume", "-q", name, "-c", "2", "-p", "1", "cat") == "a\nb\n"
    assert tools.output("consume", "-q", name, "-A", "-c", "1", "cat") == "c\n"
    assert tools.output("delete-queue", "-q", name, "-e").strip() == "0"


def test_consume_bound_to_an_exchange(tools: Tools, name: str, broker: Broker) -> None:
    """A queue of its own, bound to amq.topic."""
    key = f"{name}.key"
    with (
        raw.connect(broker.uri) as connection,
        subprocess.Popen(
            tools.command("consume", "-e", "amq.topic", "-r", f"{name}.*", "-c", "3", "cat"),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as consumer,
    ):  # fmt: skip
        try:
            connection.open_channel(1)
            wait_until_routed(connection, key)
            for _ in range(2):
                connection.send(raw.publish(1, "amq.topic", key, b"m\n"))
            out, error = consumer.communicate(timeout=SECONDS_MAX)
        finally:
            consumer.kill()
    assert (out, consumer.returncode) == ("m\n" * 3, 0), error


def wait_until_routed(connection: raw.Connection, key: str) -> None:
    """Publish one message again and again until it is not returned."""
    connection.call(1, "confirm.select")
    while True:
        connection.send(raw.publish(1, "amq.topic", key, b"m\n", mandatory=True))
        if connection.next_method().name == "basic.ack":
            return
        connection.expect(1, "basic.ack")


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("get", ["-q", "{}"], "NOT_FOUND - no queue '{}' in vhost '/'"),
        ("consume", ["-q", "{}", "cat"], "NOT_FOUND - no queue '{}' in vhost '/'"),
        ("declare-queue", ["-q", "amq.{}"], "ACCESS_REFUSED - queue name 'amq.{}'"),
        ("get", ["-q", "{}", "--password=wrong"], "ACCESS_REFUSED - Login was refused"),
        ("get", ["-q", "{}", "--vhost={}"], "NOT_ALLOWED - vhost {} not found"),
    ],
)
def test_errors(tools: Tools, name: str, tool: str, arguments: list[str], error: str) -> None:
    """The broker's text reaches the user."""
    done = tools.run(tool, *[argument.format(name) for argument in arguments])
    assert done.returncode != 0
    assert error.format(name) in done.stderr


def test_delete_conditions(tools: Tools, name: str) -> None:
    tools.output("declare-queue", "-q", name)
    tools.output("publish", "-r", name, "-b", "m")
    done = tools.run("delete-queue", "-q", name, "--if-empty")
    assert "PRECONDITION_FAILED" in done.stderr
    assert done.returncode != 0
    tools.output("get", "-q", name)
    tools.output("delete-queue", "-q", name, "--if-empty", "--if-unused")
