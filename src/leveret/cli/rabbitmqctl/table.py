"""The commands of RabbitMQ's tools, and their counterparts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.cli.ctl.asking import BrokerAddress
from leveret.cli.rabbitmqctl import checks, status, users
from leveret.cli.rabbitmqctl.lists import LISTS, print_list
from leveret.cli.rabbitmqctl.options import CommandLine

#: Commands with the same name and arguments in `leveret ctl`.
SAME: Final = (
    "add_user",
    "delete_user",
    "change_password",
    "set_user_tags",
    "set_user_limits",
    "clear_user_limits",
    "add_vhost",
    "update_vhost_metadata",
    "delete_vhost",
    "set_vhost_limits",
    "clear_vhost_limits",
    "set_permissions",
    "clear_permissions",
    "set_topic_permissions",
    "clear_topic_permissions",
    "set_policy",
    "clear_policy",
    "set_operator_policy",
    "clear_operator_policy",
    "set_parameter",
    "clear_parameter",
    "set_global_parameter",
    "clear_global_parameter",
    "export_definitions",
    "import_definitions",
    "delete_queue",
    "purge_queue",
    "close_connection",
    "close_all_connections",
)

#: Commands that only read, with the output of RabbitMQ's tools.
ASKING: Final[dict[str, Callable[[CommandLine, BrokerAddress], int]]] = {
    **dict.fromkeys(LISTS, print_list),
    "status": status.status,
    "cluster_status": status.cluster_status,
    "version": status.version,
    "server_version": status.server_version,
    "erlang_version": status.erlang_version,
    "is_running": status.is_running,
    "authenticate_user": users.authenticate_user,
    "ping": checks.ping,
    "await_startup": checks.await_startup,
    "listeners": checks.listeners,
    "alarms": checks.alarms,
    "memory_breakdown": checks.memory_breakdown,
    "check_running": checks.check_running,
    "node_health_check": checks.check_health,
    "check_alarms": checks.checking("alarms", passed="has no alarms"),
    "check_local_alarms": checks.checking("local-alarms", passed="has no local alarms"),
    "check_virtual_hosts": checks.checking("virtual-hosts", passed="serves all virtual hosts"),
    "check_port_connectivity": checks.check_port_connectivity,
    "check_port_listener": checks.checking("port-listener", "{0}", passed="listens on port {0}"),
    "check_protocol_listener": checks.checking(
        "protocol-listener", "{0}", passed="listens for protocol {0}"
    ),
    "check_if_node_is_quorum_critical": checks.checking(
        "node-is-quorum-critical", passed="is not critical for any quorum"
    ),
    "check_if_node_is_mirror_sync_critical": checks.checking(
        "node-is-mirror-sync-critical", passed="is not critical for any mirror"
    ),
}

_SERVICE: Final = "use the service manager to start and stop a broker: systemctl restart leveret"
_ALONE: Final = "a broker is a single node, without a cluster"
_SETTINGS: Final = "it is a setting: docs/reference/operation/configuration.md"

#: Commands without a counterpart, and the alternatives.
ELSEWHERE: Final = {
    **dict.fromkeys(("stop", "shutdown", "start_app", "stop_app", "wait"), _SERVICE),
    **dict.fromkeys(
        ("join_cluster", "forget_cluster_node", "change_cluster_node_type", "force_boot"), _ALONE
    ),
    **dict.fromkeys(
        ("set_vm_memory_high_watermark", "set_disk_free_limit", "set_log_level", "environment"),
        _SETTINGS,
    ),
    "rotate_logs": "the log goes to standard error, where its reader rotates it",
    "reset": "start a broker with another data directory",
    "clear_password": "give the user another password: change_password",
    "trace_on": "there is no firehose; bind a stream to the exchange to be observed",
    "trace_off": "there is no firehose",
}
