"""A channel of AMQP for what a request does with messages, queues and bindings.

So it meets what every client meets: permissions, limits, the journal and its confirms.  Here is
what routes see of it (`server.direct` has it); the user is the one who asks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

from aiohttp import web

from leveret.broker.node.broker import Broker
from leveret.broker.node.users import ADMINISTRATOR
from leveret.errors import AccessRefused, NotAllowed, PreconditionFailed
from leveret.management.gate import ACCESS
from leveret.wire.method import Method


class DirectAnswer(Protocol):
    """A method that the broker sent, with its content where it has one."""

    method: Method
    properties: bytes
    body: bytes


class DirectChannel(Protocol):
    """A channel; what the broker closes it for is raised as AmqpError."""

    async def request(self, method: Method, *answers: type[Method]) -> DirectAnswer:
        """Send a method; return the answer, which is one of `answers`."""

    async def publish(
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *answers: type[Method],
    ) -> Sequence[DirectAnswer]:
        """Publish as mandatory; return what came up to the first of `answers`."""

    def send(self, method: Method) -> None:
        """Send a method that has no answer."""

    async def close_channel(self) -> None:
        """Close the channel; all that was sent before is done then."""


#: Opens a channel as a user in a vhost.
OpenDirect = Callable[[str, str], AbstractAsyncContextManager[DirectChannel]]


@asynccontextmanager
async def direct_channel(
    request: web.Request, broker: Broker, opens: OpenDirect, vhost: str
) -> AsyncIterator[DirectChannel]:
    """Open a channel in a vhost for who asks.

    Raises: AmqpError as AMQP would answer; AccessRefused (401 in HTTP) for a user who may not enter
    the vhost.
    """
    access = request.get(ACCESS)
    user = operating_user(broker, vhost) if access is None else access.user
    try:
        async with opens(user, vhost) as channel:
            yield channel
    except NotAllowed as refused:
        raise AccessRefused(refused.text) from None


def operating_user(broker: Broker, vhost: str) -> str:
    """Return the user that who operates the broker acts as on the management socket.

    It is the first administrator who may enter the vhost: messages and queues are somebody's.

    Raises: PreconditionFailed (400 in HTTP) where there is none.
    """
    for name, known in broker.users.by_name.items():
        if ADMINISTRATOR in known.tags and (name, vhost) in broker.users.permissions:
            return name
    raise PreconditionFailed(
        f"no administrator may enter vhost '{vhost}', so that nobody could do this: give one "
        "permissions there, or ask over TCP as a user who has them"
    )
