"""The node's name, and the versions by which clients decide which features to use."""

from __future__ import annotations

import platform
import socket
from typing import Final

from aiohttp import web

from leveret.errors import NotFound
from leveret.management.routes.shared import BROKER

#: Replaces the Erlang version that RabbitMQ's clients expect.
RUNTIME_VERSION: Final = platform.python_version()
RUNTIME: Final = f"Python {RUNTIME_VERSION}"

#: The global parameter that holds the cluster's name, as in RabbitMQ.
CLUSTER_NAME: Final = "cluster_name"


def node_name() -> str:
    """Return the node's name, made of product and host as in RabbitMQ."""
    return f"leveret@{socket.gethostname()}"


def cluster_name(request: web.Request) -> str:
    """Return the configured name of the cluster, or else the node's name."""
    value = request.app[BROKER].parameters.global_values.get(CLUSTER_NAME)
    return value if isinstance(value, str) else node_name()


def check_node(request: web.Request) -> None:
    """Check that the path names this node.  Raises: NotFound (404)."""
    if request.match_info["name"] != node_name():
        raise NotFound(f"no node '{request.match_info['name']}'")
