"""What a boot on a harmed copy of a specimen shows, held against what the unharmed one shows.

Allowed is the loss of what was harmed, where it is reported; never a message that was not sent, or
not to this queue, or that carries something else, or twice, or in another order.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from chaos.forks import Boot
from chaos.reading import Message, Reading, messages_of
from chaos.specimen import STREAM, URGENT, Specimen
from support.wire.raw_codec import decode_properties

#: What the log says of damage, old or new, and of what a crash tore.
REPORTS: Final = ("damage found", "torn end of the journal")

#: How long a report of what was read may take to reach the log.
REPORT_SECONDS_MAX: Final = 3.0

#: What a stream adds to a message.
STREAM_HEADERS: Final = ("x-stream-offset", "x-stream-timestamp")

#: Where messages go whose queue is not known any more.
ORPHANS: Final = "leveret.recovered."


@dataclass
class Verdict:
    """What came of one boot: messages by queue and id, and in words what else was wrong."""

    boots: bool
    lost: set[tuple[str, str]] = field(default_factory=set)
    returned: set[tuple[str, str]] = field(default_factory=set)
    phantom: int = 0
    altered: int = 0
    problems: list[str] = field(default_factory=list)
    #: Whether anything differs from the unharmed, and whether damage was named.
    changed: bool = False
    reported: bool = False


def judge(specimen: Specimen, boot: Boot, reading: Reading, *, said_all: bool = False) -> Verdict:
    """Return the verdict on a boot that was read; `said_all` tells that no word is on its way."""
    verdict = Verdict(boots=boot.port != 0, problems=list(reading.problems))
    if not verdict.boots:
        return verdict
    heard = {name: data for name, data in reading.queues.items() if not name.startswith(ORPHANS)}
    for name, data in reading.queues.items():
        if name.startswith(ORPHANS):
            stands_for = _of_orphan(specimen, data, set(heard))
            if not stands_for:
                verdict.problems.append(f"{name} holds messages of no lost queue")
            else:
                heard[stands_for] = data
    for queue in {**specimen.reading.queues, **heard}:
        if heard.get(queue) != specimen.reading.queues.get(queue):
            verdict.changed = True
            _judge_queue(specimen, verdict, queue, heard.get(queue, b""))
    if boot.definitions != specimen.definitions:
        verdict.changed = True
    verdict.reported = _is_reported(boot, wait=verdict.changed and not said_all)
    if verdict.changed and not verdict.reported:
        verdict.problems.append("it changed and nothing was reported")
    return verdict


def _is_reported(boot: Boot, *, wait: bool) -> bool:
    """Tell whether the log names damage; wait a moment for it where there must be some."""
    end = time.monotonic() + (REPORT_SECONDS_MAX if wait else 0)
    while True:
        said = boot.said()
        if any(report in said for report in REPORTS):
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)


@lru_cache(maxsize=256)
def parsed(data: bytes) -> tuple[Message, ...]:
    """Return the messages in what was read; the same bytes come again and again."""
    return tuple(messages_of(data))


def _of_orphan(specimen: Specimen, data: bytes, there: set[str]) -> str:
    """Return the lost queue that a recovered one stands for, or an empty name."""
    candidates: set[str] | None = None
    for message in parsed(data):
        places = set(specimen.places.get(message.id, ())) - there
        candidates = places if candidates is None else candidates & places
    return next(iter(sorted(candidates)), "") if candidates else ""


def _judge_queue(specimen: Specimen, verdict: Verdict, queue: str, data: bytes) -> None:
    """Judge the messages of one queue."""
    before = [message.id for message in parsed(specimen.reading.queues.get(queue, b""))]
    there: list[str] = []
    for message in parsed(data):
        if message.id not in specimen.sent:
            verdict.phantom += 1
        elif not is_same(specimen, message, queue):
            verdict.altered += 1
        elif not message.redelivered and queue != STREAM:
            verdict.problems.append(f"{queue}: {message.id} is not called redelivered")
        there.append(message.id)
    if len(set(there)) < len(there):
        verdict.problems.append(f"{queue}: messages came twice")
    verdict.lost |= {(queue, id_) for id_ in set(before) - set(there)}
    returned = {(queue, id_) for id_ in set(there) - set(before)}
    verdict.phantom += len(returned - specimen.gone)
    verdict.returned |= returned & specimen.gone
    _judge_order(verdict, queue, before, there)


def _judge_order(verdict: Verdict, queue: str, before: list[str], there: list[str]) -> None:
    known = set(before)
    kept = set(there)
    if [i for i in there if i in known] != [i for i in before if i in kept]:
        verdict.problems.append(f"{queue}: the order changed")
    numbers = [int(id_[1:]) for id_ in there if id_[1:].isdecimal()]
    if queue != URGENT and numbers != sorted(numbers):
        verdict.problems.append(f"{queue}: what came back is out of order")


def is_same(specimen: Specimen, message: Message, queue: str) -> bool:
    """Tell whether a message is what was sent to this queue."""
    sent = specimen.sent[message.id]
    found = message.content
    if queue not in specimen.places[message.id]:
        return False
    if (found.exchange, found.routing_key, found.body) != (
        sent.exchange,
        sent.routing_key,
        sent.body,
    ):
        return False
    if queue != STREAM:
        return found.properties == sent.properties
    values = decode_properties(found.properties)
    for name in STREAM_HEADERS:
        values["headers"].pop(name, None)
    return bool(values == decode_properties(sent.properties))
