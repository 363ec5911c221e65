"""Dead letters of the reference broker: what a message is after a queue let it go."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from model.queue import Death, Message, Queue

#: Headers that tell of deaths; a publisher's own are replaced.
DEATH_HEADERS = ("x-death", "x-first-death-", "x-last-death-")


def died(queue: Queue, message: Message, reason: str, exchange: str, now_ms: int) -> Message:
    """The message as it is published again, to the keys of its BCC too."""
    key = queue.arguments.get("x-dead-letter-routing-key")
    keys = (key,) if key is not None else message.keys
    new = Death(
        queue.name, reason, 1, now_ms // 1000, message.exchange, message.keys,
        message.properties.get("expiration"),
    )  # fmt: skip
    others = []
    for death in message.deaths:
        if (death.queue, death.reason) == (new.queue, new.reason):
            new = replace(death, count=death.count + 1)
        else:
            others.append(death)
    deaths = (new, *others)
    properties = copy.deepcopy(message.properties)
    properties.pop("expiration", None)
    headers = properties.setdefault("headers", {})
    if not message.deaths:
        for header in [one for one in headers if one.startswith(DEATH_HEADERS)]:
            del headers[header]
        _tell_of("first", headers, new, message.exchange)
    headers["x-death"] = [death.entry() for death in deaths]
    _tell_of("last", headers, new, message.exchange)
    hidden = () if key is not None else message.hidden
    return Message(message.body, exchange, keys, properties, hidden, deaths)


def _tell_of(which: str, headers: dict[str, Any], death: Death, exchange: str) -> None:
    headers[f"x-{which}-death-queue"] = death.queue
    headers[f"x-{which}-death-reason"] = death.reason
    headers[f"x-{which}-death-exchange"] = exchange


def circle(target: str, deaths: tuple[Death, ...]) -> bool:
    """Whether a message comes back to a queue without anybody having rejected it on its way."""
    for number, death in enumerate(deaths):
        if death.queue == target:
            return all(one.reason != "rejected" for one in deaths[: number + 1])
    return False
