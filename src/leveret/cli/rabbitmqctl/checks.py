"""Health checks and other commands about a broker's state; on failure they print the reason."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from leveret.cli import exits
from leveret.cli.contexts.remote import Remote
from leveret.cli.ctl.asking import BrokerAddress
from leveret.cli.printing import output
from leveret.cli.rabbitmqctl.formats import print_rows
from leveret.cli.rabbitmqctl.options import CommandLine

#: The time limit for connecting to a port.
_CONNECT_SECONDS: Final = 10.0

#: The default time limit of `await_startup`, and the pause between its attempts.
_STARTUP_SECONDS: Final = 300.0
_TRY_SECONDS: Final = 0.2

#: Wildcard addresses.
ANYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 (compared, not bound)

Row = Mapping[str, object]


def ping(line: CommandLine, broker: BrokerAddress) -> int:
    """Check whether a broker answers."""
    name = node_of(broker)
    if line.banner:
        output.say(f"Will ping {name}. This only checks if the broker answers.")
    output.say("Ping succeeded")
    return exits.OK


def check_running(line: CommandLine, broker: BrokerAddress) -> int:
    """Check whether a broker has started; before that, it does not answer."""
    if not line.flags & {"quiet", "silent"}:
        output.say(f"RabbitMQ on node {node_of(broker)} is fully booted and running")
    else:
        node_of(broker)
    return exits.OK


def check_health(line: CommandLine, broker: BrokerAddress) -> int:
    """Check whether a broker answers, has no alarm, and serves its vhosts."""
    for path in ("local-alarms", "virtual-hosts", "is-in-service"):
        broker.ask("GET", "health", "checks", path)
    if not line.flags & {"quiet", "silent"}:
        output.say("Health check passed")
    return exits.OK


def checking(*path: str, passed: str) -> Callable[[CommandLine, BrokerAddress], int]:
    """Return a command for a health check of the API; `{0}` stands for its argument."""

    def check(line: CommandLine, broker: BrokerAddress) -> int:
        needed = "{0}" in path
        if len(line.arguments) != needed:
            count = "one argument" if needed else "no arguments"
            raise exits.Failure(f"{line.command} takes {count}", exits.USAGE)
        given = line.arguments[0] if needed else ""
        broker.ask("GET", "health", "checks", *[part.replace("{0}", given) for part in path])
        if not line.flags & {"quiet", "silent"}:
            output.say(f"Node {node_of(broker)} {passed.replace('{0}', given)}")
        return exits.OK

    return check


def check_port_connectivity(line: CommandLine, broker: BrokerAddress) -> int:
    """Connect to all ports of a broker."""
    api = broker.place.find_api()
    here = api.host if isinstance(api, Remote) else "localhost"
    listeners = listeners_of(broker)
    for listener in listeners:
        host = str(listener["interface"])
        host = here if host in ANYWHERE else host
        port = int(str(listener["port"]))
        try:
            socket.create_connection((host, port), _CONNECT_SECONDS).close()
        except OSError as error:
            where = f"{host}:{port} ({listener['protocol']})"
            text = f"cannot connect to {where}: {exits.reason_of(error)}"
            raise exits.Failure(text, exits.UNAVAILABLE) from None
    if not line.flags & {"quiet", "silent"}:
        told = ", ".join(str(one["port"]) for one in listeners)
        output.say(f"Successfully connected to ports {told} on node {node_of(broker)}.")
    return exits.OK


def await_startup(line: CommandLine, broker: BrokerAddress) -> int:
    """Wait until a broker answers."""
    deadline = time.monotonic() + line.seconds(_STARTUP_SECONDS)
    while True:
        try:
            node_of(broker)
            return exits.OK
        except exits.Failure as failure:
            if failure.code != exits.UNAVAILABLE or time.monotonic() >= deadline:
                raise
        time.sleep(_TRY_SECONDS)


def listeners(line: CommandLine, broker: BrokerAddress) -> int:
    """List the listeners of a broker."""
    if line.formatter == "json":
        output.say_json({"listeners": listeners_of(broker), "result": "ok"})
        return exits.OK
    if line.banner:
        output.say(f"Asking node {node_of(broker)} to report its protocol listeners ...")
    for one in listeners_of(broker):
        output.say(
            f"Interface: {one['interface']}, port: {one['port']}, protocol: {one['protocol']}, "
            f"purpose: {one['purpose']}"
        )
    return exits.OK


def alarms(line: CommandLine, broker: BrokerAddress) -> int:
    """List the active alarms."""
    found = alarms_of(one_of(broker, "nodes"))
    if line.formatter == "json":
        output.say_json({"local": found, "global": found, "result": "ok"})
        return exits.OK
    if not found:
        output.say(f"Node {node_of(broker)} reported no alarms, local or clusterwide")
    for alarm in found:
        output.say(f"{alarm} alarm on node {node_of(broker)}")
    return exits.OK


def memory_breakdown(line: CommandLine, broker: BrokerAddress) -> int:
    """List the memory use of a broker by category, in bytes."""
    found = broker.ask("GET", "nodes", node_of(broker), "memory")
    memory = found.get("memory") if isinstance(found, dict) else None
    parts = memory if isinstance(memory, dict) else {}
    rows = [
        {"category": name, "bytes": value}
        for name, value in parts.items()
        if isinstance(value, int)
    ]
    rows.sort(key=lambda row: -int(row["bytes"]))
    print_rows(line, rows, ("category", "bytes"))
    return exits.OK


def node_of(broker: BrokerAddress) -> str:
    """Return the name of a broker's node.  Raises: Failure."""
    return str(one_of(broker, "overview").get("node", ""))


def listeners_of(broker: BrokerAddress) -> list[dict[str, object]]:
    """Return the listeners of a broker, with the names of RabbitMQ's tools.  Raises: Failure."""
    found = one_of(broker, "overview").get("listeners")
    return [
        {
            "node": one.get("node"),
            "interface": one.get("ip_address"),
            "port": one.get("port"),
            "protocol": one.get("protocol"),
            "purpose": _PURPOSES.get(str(one.get("protocol")), str(one.get("protocol"))),
        }
        for one in (found if isinstance(found, list) else [])
    ]


def alarms_of(node: Row) -> list[str]:
    """Return the active alarms of a node, by RabbitMQ's names."""
    names = {"mem_alarm": "memory", "disk_free_alarm": "disk"}
    return [name for field, name in names.items() if node.get(field) is True]


def one_of(broker: BrokerAddress, *path: str) -> Row:
    """Return an object of the API, or the first object of a list.  Raises: Failure."""
    found = broker.ask("GET", *path)
    if isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, Mapping):
        raise exits.Failure("the broker's answer is not an object", exits.PROTOCOL)
    return found


#: The purposes of listeners, as RabbitMQ's tools print them.
_PURPOSES: Final = {
    "amqp": "AMQP 0-9-1 and AMQP 1.0",
    "amqp/ssl": "AMQP 0-9-1 and AMQP 1.0 over TLS",
    "http": "HTTP API",
    "https": "HTTP API over TLS (HTTPS)",
    "http/prometheus": "Prometheus exporter API over HTTP",
}
