"""`status`, `cluster_status` and versions, in the JSON of RabbitMQ's tools.

In other formats, `status` prints the same as `leveret status`.
"""

from __future__ import annotations

from collections.abc import Mapping

from leveret.cli import exits
from leveret.cli.ctl.asking import BrokerAddress
from leveret.cli.printing import output
from leveret.cli.rabbitmqctl.checks import alarms_of, listeners_of, node_of, one_of
from leveret.cli.rabbitmqctl.options import CommandLine


def status(line: CommandLine, broker: BrokerAddress) -> int:
    """Print the state of a broker."""
    if line.formatter != "json":
        from leveret.cli.watching.status import print_status

        print_status(broker.place)
        return exits.OK
    overview, node = one_of(broker, "overview"), one_of(broker, "nodes")
    held = overview.get("object_totals")
    counts = held if isinstance(held, Mapping) else {}
    memory = broker.ask("GET", "nodes", str(node.get("name")), "memory")
    vhosts = broker.ask("GET", "vhosts")
    found: dict[str, object] = {
        "pid": int(str(node.get("os_pid", 0))),
        "uptime": int(str(node.get("uptime", 0))) // 1000,
        "rabbitmq_version": overview.get("rabbitmq_version"),
        "product_name": overview.get("product_name"),
        "product_version": overview.get("product_version"),
        "erlang_version": overview.get("erlang_full_version"),
        "alarms": alarms_of(node),
        "listeners": listeners_of(broker),
        "memory": memory.get("memory") if isinstance(memory, dict) else {},
        "vm_memory_high_watermark_limit": node.get("mem_limit"),
        "disk_free": node.get("disk_free"),
        "disk_free_limit": node.get("disk_free_limit"),
        "file_descriptors": {
            "total_used": node.get("fd_used"),
            "total_limit": node.get("fd_total"),
        },
        "processes": {"used": node.get("proc_used"), "limit": node.get("proc_total")},
        "run_queue": node.get("run_queue"),
        "active_plugins": node.get("enabled_plugins"),
        "is_under_maintenance": False,
        "totals": {
            "connection_count": counts.get("connections", 0),
            "queue_count": counts.get("queues", 0),
            "virtual_host_count": len(vhosts) if isinstance(vhosts, list) else 0,
        },
    }
    output.say_json(found)
    return exits.OK


def cluster_status(line: CommandLine, broker: BrokerAddress) -> int:
    """Print the state of the cluster, which has a single node."""
    node = one_of(broker, "nodes")
    name, cluster = str(node.get("name", "")), one_of(broker, "cluster-name").get("name")
    if line.formatter == "json":
        found: dict[str, object] = {
            "cluster_name": cluster,
            "disk_nodes": [name],
            "ram_nodes": [],
            "running_nodes": [name],
            "partitions": {},
            "alarms": [{"node": name, "resource": alarm} for alarm in alarms_of(node)],
            "listeners": {name: listeners_of(broker)},
            "versions": {
                name: {
                    "rabbitmq_name": "RabbitMQ",
                    "rabbitmq_version": node.get("rabbitmq_version"),
                    "erlang_version": node.get("erlang_version"),
                }
            },
        }
        output.say_json(found)
        return exits.OK
    if line.banner:
        output.say(f"Cluster status of node {name} ...")
    output.say(f"Cluster name: {cluster}")
    output.say(f"Running nodes: {name}")
    output.say(f"Alarms: {', '.join(alarms_of(node)) or 'none'}")
    return exits.OK


def version(line: CommandLine, broker: BrokerAddress) -> int:
    """Print the same as `server_version`, or the default version if no broker answers.

    RabbitMQ's tools print their own version, which needs no broker.
    """
    from leveret.session.settings import RABBITMQ_VERSION

    try:
        return server_version(line, broker)
    except exits.Failure as failure:
        if failure.code != exits.UNAVAILABLE:
            raise
    output.say(RABBITMQ_VERSION)
    return exits.OK


def server_version(_line: CommandLine, broker: BrokerAddress) -> int:
    """Print the RabbitMQ version that a broker reports."""
    output.say(str(one_of(broker, "overview").get("rabbitmq_version", "")))
    return exits.OK


def erlang_version(_line: CommandLine, broker: BrokerAddress) -> int:
    """Print the Erlang version that a broker reports."""
    output.say(str(one_of(broker, "overview").get("erlang_full_version", "")))
    return exits.OK


def is_running(line: CommandLine, broker: BrokerAddress) -> int:
    """Check whether a broker runs."""
    name = node_of(broker)
    if line.formatter == "json":
        output.say_json({"name": name, "result": "ok", "running": True})
    else:
        output.say(f"RabbitMQ on node {name} is running")
    return exits.OK
