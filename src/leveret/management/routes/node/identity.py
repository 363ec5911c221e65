"""The names of the node and the cluster, and the runtime version shown to clients."""

from __future__ import annotations

import platform
import socket
from typing import Final

from aiohttp import web

from leveret.errors import NotFound
from leveret.management.routes.shared import BROKER

#: The Python version, shown in place of RabbitMQ's Erlang version.
RUNTIME_VERSION: Final = platform.python_version()
RUNTIME: Final = f"Python {RUNTIME_VERSION}"

#: The global parameter for the name of the cluster, as in RabbitMQ.
CLUSTER_NAME: Final = "cluster_name"


def node_name() -> str:
    """Return the name of the node, which consists of product and host as in RabbitMQ."""
    return f"leveret@{socket.gethostname()}"


def cluster_name(request: web.Request) -> str:
    """Return the configured name of the cluster, or the name of the node without one."""
    value = request.app[BROKER].parameters.global_values.get(CLUSTER_NAME)
    return value if isinstance(value, str) else node_name()


def check_node(request: web.Request) -> None:
    """Check that the path names this node.  Raises: NotFound (404)."""
    if request.match_info["name"] != node_name():
        raise NotFound(f"no node '{request.match_info['name']}'")
