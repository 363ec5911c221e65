"""The parts of requests and replies that both shells share.

A requester publishes with direct reply-to, on a channel of its own in confirm mode.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.client.message import Message
    from leveret.client.options import PublishArguments

#: The queue of direct reply-to: the broker passes replies to the consumer that sent the request.
REPLIES: Final = "amq.rabbitmq.reply-to"

#: How long `request` waits for a reply by default, in seconds.
REPLY_SECONDS: Final = 30.0


def of_request(options: PublishArguments, timeout: float | None) -> str:
    """Complete the options of a request; return its correlation ID.

    Unless they have an expiration, the request expires when nobody waits for its reply any more.
    """
    correlation_id = secrets.token_hex(16)
    options["correlation_id"] = correlation_id
    options["reply_to"] = REPLIES
    if timeout is not None:
        options.setdefault("expiration", timeout)
    return correlation_id


def of_reply(request: Message, options: PublishArguments) -> str:
    """Complete the options of a reply; return its routing key, or "" if no reply is expected."""
    properties = request.properties
    options.setdefault("correlation_id", properties.correlation_id)
    return properties.reply_to or ""


def no_reply(exchange: str, routing_key: str, timeout: float | None) -> TimeoutError:
    """Return the error for a request without a reply in time."""
    return TimeoutError(
        f"no reply to the request to exchange {exchange!r} with routing key {routing_key!r} "
        f"within {timeout} s"
    )
