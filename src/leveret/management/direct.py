"""An AMQP channel for requests that handle messages, queues and bindings.

Through the channel, a request is subject to the same rules as an AMQP client: permissions, limits,
the journal and confirms.  The channel acts as the user of the request.  This module is the
interface for routes; `server.direct` implements it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from aiohttp import web

from leveret.broker.broker import Broker
from leveret.broker.users.users import ADMINISTRATOR
from leveret.errors import AccessRefused, NotAllowed, PreconditionFailed
from leveret.management.gate import ACCESS
from leveret.wire.method import Method


class DirectAnswer(Protocol):
    """A method that the broker sent, with its content if it has any."""

    method: Method
    properties: bytes
    body: bytes


class DirectChannel(Protocol):
    """A channel; an error that closes it is raised as AmqpError."""

    async def request(self, method: Method, *answers: type[Method]) -> DirectAnswer:
        """Send a method and return its answer, whose type is one of `answers`."""

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *answers: type[Method],
    ) -> Sequence[DirectAnswer]:
        """Publish a mandatory message; return the methods received up to the first of `answers`."""

    def send(self, method: Method) -> None:
        """Send a method that has no answer."""

    async def close_channel(self) -> None:
        """Close the channel once all methods sent before are executed."""


#: Opens a channel as a user in a vhost.
OpenDirect = Callable[[str, str], AbstractAsyncContextManager[DirectChannel]]


@asynccontextmanager
async def direct_channel(
    request: web.Request, broker: Broker, opens: OpenDirect, vhost: str
) -> AsyncIterator[DirectChannel]:
    """Open a channel in a vhost for the user of a request.

    Raises: AmqpError as over AMQP; AccessRefused (401 in HTTP) for a user without access to the
    vhost.
    """
    access = request.get(ACCESS)
    user = operating_user(broker, vhost) if access is None else access.user
    try:
        async with opens(user, vhost) as channel:
            yield channel
    except NotAllowed as refused:
        raise AccessRefused(refused.text) from None


def operating_user(broker: Broker, vhost: str) -> str:
    """Return the user that the operator acts as on the management socket.

    A channel needs a user.  It is the first administrator with permissions in the vhost.

    Raises: PreconditionFailed (400 in HTTP) if no administrator has permissions there.
    """
    for name, known in broker.users.by_name.items():
        if ADMINISTRATOR in known.tags and (name, vhost) in broker.users.permissions:
            return name
    raise PreconditionFailed(
        f"no administrator has permissions in vhost '{vhost}': give them to one, or send the "
        "request over TCP as a user with permissions there"
    )
