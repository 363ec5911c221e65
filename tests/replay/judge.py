"""The invariants: what a recovery found, held against what the journal says.

`sure` is what there is by the groups that were durable, `under_way` the groups that were written
and not known to be durable: of those a crash keeps any part, record by record.

- I1 what is sure and no record under way takes away is there, with its count,
- I2 nothing is there but what was published, and nothing is altered,
- I3 what is surely gone stays gone,
- I4 each sequence holds the message that got it,
- I5 definitions are there, or are those of a record under way,
- I6 a record (a transaction, a move, a publish to several queues) happened whole or not at all,
- I7 nothing is called damaged, and nothing thrown away,
- I10 counts agree with what is there,
- I11 of each publisher the highest number is known whose message was taken, and no higher one.
"""

from __future__ import annotations

from collections.abc import Sequence

from leveret.broker.recovery.restore import ORPHANS
from replay.account import Change, Entry, Holding, Identity, Key
from replay.found import Found

#: Problems of one state that are told; one has many of the same kind.
TOLD_MAX = 6


def judge(found: Found, sure: Holding, under_way: Sequence[Entry]) -> list[str]:
    """Return what is wrong with what a recovery found, in words; nothing when all is right."""
    problems = list(found.wrong)
    problems += [f"I7 called damaged: {damage}" for damage in found.damages]
    now = found.holding
    last = under_way[-1].after if under_way else sure
    for whole in (sure, last):
        same = now.messages == whole.messages and now.definitions == whole.definitions
        if same and now.publishers == whole.publishers and not found.orphaned:
            return problems
    changes = [change for entry in under_way for change in entry.changes]
    problems += judge_messages(now, sure, changes)
    problems += judge_definitions(now, sure, changes)
    problems += judge_records(now, sure, changes)
    problems += judge_publishers(now, sure, changes)
    if len(problems) > TOLD_MAX:
        problems[TOLD_MAX:] = [f"and {len(problems) - TOLD_MAX} more"]
    return problems


def judge_messages(now: Holding, sure: Holding, changes: list[Change]) -> list[str]:
    """Judge each message that is there or should be."""
    problems = []
    for key, (kept, count) in sure.messages.items():
        if key not in now.messages:
            if not any(change.removes(key) for change in changes):
                problems.append(f"I1 {named(key, sure)} is lost: {kept[3][:20]!r}")
        elif now.messages[key][0] != kept and not any(key in change.adds for change in changes):
            problems.append(f"I2 {named(key, sure)} is altered: {kept[3][:20]!r}")
        elif now.messages[key][1] not in counts(key, count, changes):
            told = f"{now.messages[key][1]} for {sorted(counts(key, count, changes))}"
            problems.append(f"I1 {named(key, sure)} has the count {told}")
    for key, (kept, count) in now.messages.items():
        if key in sure.messages:
            continue
        added = [change.adds[key] for change in changes if key in change.adds]
        if not added:
            problems.append(f"I2/I3 {named(key, now)} came from nowhere: {kept[3][:20]!r}")
        elif kept not in added:
            problems.append(f"I2 {named(key, now)} is altered: {kept[3][:20]!r}")
        elif count not in counts(key, 0, changes):
            problems.append(f"I2 {named(key, now)} has a count of its own: {count}")
    return problems


def counts(key: Key, count: int, changes: list[Change]) -> set[int]:
    """Return the counts that a message may have."""
    return {count, *(change.counts[key] for change in changes if key in change.counts)}


def named(key: Key, holding: Holding) -> str:
    """Return a message's place in words."""
    vhost, name = holding.queues.get(key[0], ("?", "?"))
    return f"{key[1]} of queue {key[0]} ('{name}' in '{vhost}')"


def judge_definitions(now: Holding, sure: Holding, changes: list[Change]) -> list[str]:
    """Judge each definition that is there or should be."""
    problems = []
    options = _options(sure, changes)
    for one in {*now.definitions, *sure.definitions}:
        there = now.definitions.get(one)
        if there in options.get(one, {sure.definitions.get(one)}):
            continue
        if _is_orphan(one, now) and changes and one not in sure.definitions:
            continue
        told = f"{one} is {there}, and was {sure.definitions.get(one)}"
        problems.append(f"I5 {told}")
    return problems


def _options(sure: Holding, changes: list[Change]) -> dict[Identity, set[str | None]]:
    """Return what each definition that is touched by records under way may be."""
    options: dict[Identity, set[str | None]] = {}
    running = sure.copy()
    for change in changes:
        before = dict(running.definitions)
        running.take(change)
        for one in {*before, *running.definitions}:
            if before.get(one) != running.definitions.get(one):
                options.setdefault(one, {sure.definitions.get(one)})
                options[one].add(running.definitions.get(one))
    bound = {name for one in options if one[0] in ("queue", "exchange") for name in _names(one)}
    for one in {*sure.definitions, *options}:
        # A binding goes with an end whose record was lost or whose delete was kept.
        if one[0] == "binding" and (one[2] in bound or one[4] in bound or "queue" in bound):
            options.setdefault(one, {sure.definitions.get(one)}).add(None)
    return options


def _names(one: Identity) -> list[str]:
    return ["queue"] if one[0] == "queue" else [one[2]]


def _is_orphan(one: Identity, now: Holding) -> bool:
    return one[0] == "queue" and now.queues.get(int(one[1]), ("", ""))[1].startswith(ORPHANS)


def judge_records(now: Holding, sure: Holding, changes: list[Change]) -> list[str]:
    """Judge that each record under way happened whole or not at all."""
    problems = []
    for change in changes:
        happened = _evidence(change, now, sure, changes)
        if happened["yes"] and happened["no"]:
            yes, no = happened["yes"][0], happened["no"][0]
            problems.append(f"I6 a record happened in part: {yes}, but {no}")
    return problems


def judge_publishers(now: Holding, sure: Holding, changes: list[Change]) -> list[str]:
    """Judge the numbers of publishers: a number is known if its message was taken, and only then.

    Of a message that another record took away again a crash leaves no evidence: its number may be
    known or not.
    """
    problems = []
    for place in {*now.publishers, *sure.publishers}:
        queue_id, publisher = place
        least = sure.publishers.get(place, -1)
        most = least
        for change in changes:
            if queue_id in change.queues_gone:
                least = -1
            for key, (name, number) in change.numbers.items():
                if (key[0], name) != place:
                    continue
                if key in now.messages:
                    least = max(least, number)
                if key in now.messages or any(other.removes(key) for other in changes):
                    most = max(most, number)
        number = now.publishers.get(place, -1)
        if not least <= number <= most:
            told = f"{number} of {publisher!r} for {least} to {most}"
            problems.append(f"I11 queue {queue_id} knows {told}")
    return problems


def _evidence(
    change: Change, now: Holding, sure: Holding, changes: list[Change]
) -> dict[str, list[str]]:
    """Return what says that a record happened, and what says that it did not."""
    found: dict[str, list[str]] = {"yes": [], "no": []}
    for key in change.adds:
        if key in now.messages:
            found["yes"].append(f"{named(key, now)} is there")
        elif not any(other.removes(key) for other in changes):
            found["no"].append(f"{named(key, sure)} is not there")
    others = [other for other in changes if other is not change]
    for key in sure.messages:
        if not change.removes(key) or any(other.removes(key) for other in others):
            continue
        if key not in now.messages:
            found["yes"].append(f"{named(key, sure)} is gone")
        else:
            found["no"].append(f"{named(key, sure)} is not gone")
    return found
