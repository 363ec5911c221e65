"""What the clients of a run sent and heard: the other side of the journal's account.

A confirm, a commit-ok, the -ok of a declare or a delete that a client heard must stand in groups
that were durable at that moment; what it acked must be gone from the records that were synced
afterwards; nothing may go that nobody let go; and what the journal holds of a message is what its
publisher sent.  With that the journal's account is as good as the clients' own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from replay.account import (
    Account,
    Change,
    Content,
    Entry,
    Holding,
    Identity,
    Key,
    offset_identity,
)
from support.wire.raw_codec import decode_properties

#: Headers that dead-lettering and delaying write.
BROKER_HEADERS = ("x-death", "x-first-death-", "x-last-death-", "x-delay", "x-staged-")

#: A message's queue by name, and its number.
Place = tuple[str, int]


@dataclass
class Sent:
    """A message as its publisher sent it, and the durable queues that must have it.

    The queues are the ones at the time of publishing; a transaction's are its `commit`'s.
    """

    exchange: str
    key: str
    properties: bytes
    body: bytes
    persistent: bool
    queues: tuple[str, ...]
    #: In how many queues it may be in the end, if nobody lets it go.
    ends: tuple[int, ...] = (1,)


@dataclass
class Commit:
    """A transaction that was committed: what it published, and where it acked what."""

    published: list[int]
    acked: list[Place]


@dataclass
class Ledger:
    """What one run's clients know.  `at` is the length of the disk's trace at that moment."""

    sent: dict[int, Sent] = field(default_factory=dict)
    #: (at, number): a confirm that was heard.
    confirmed: list[tuple[int, int]] = field(default_factory=list)
    committed: list[tuple[int, Commit]] = field(default_factory=list)
    #: (at, holds): something that a reply promised to be durable.
    promised: list[tuple[int, str, Callable[[Holding], bool]]] = field(default_factory=list)
    #: What a client let go: acks, rejects and deliveries without acks.
    let_go: Counter[Place] = field(default_factory=Counter)
    #: (at, place): what a client let go was synced by then.
    gone: list[tuple[int, Place]] = field(default_factory=list)
    #: Offsets that a stream's reader was given.
    seen: list[tuple[int, str, int]] = field(default_factory=list)
    #: Queues that may let go by themselves: their limits, TTLs, purges and deletes.
    loose: set[str] = field(default_factory=set)
    #: The highest number that a staging queue was named by, whether it was declared or not.
    staged: int = 0


def number_of(body: bytes) -> int:
    """Return the number that every body of a run begins with."""
    return int(body[: body.index(b":")])


def judge_ledger(ledger: Ledger, account: Account, durable: Callable[[int], int]) -> list[str]:
    """Return where the clients know other than the journal; `durable` is of a trace's length."""
    problems: list[str] = []
    born, stream_births = _births(account)
    for at, number in ledger.confirmed:
        problems += [
            f"I1 {number} to '{queue}' was confirmed before it was durable"
            for queue in ledger.sent[number].queues
            if born.get((queue, number), 1 << 60) > durable(at)
        ]
    for at, commit in ledger.committed:
        problems += _judge_commit(commit, ledger, account.sure(durable(at)), born, durable(at))
    for at, what, holds in ledger.promised:
        if not holds(account.sure(durable(at))):
            problems.append(f"I5 {what} was answered before it was durable")
    for at, (queue, number) in ledger.gone:
        prefix = b"%d:" % number
        if any(body.startswith(prefix) for body in account.sure(durable(at)).bodies(queue)):
            problems.append(f"I3 {number} of '{queue}' was acked, and synced, and is there")
    for at, queue, offset in ledger.seen:
        if stream_births.get((queue, offset), 1 << 60) > durable(at):
            problems.append(f"a reader of '{queue}' was given {offset} before it was durable")
    problems += _judge_units(ledger, account)
    problems += _judge_numbers(account)
    problems += _judge_batches(account)
    return problems + _judge_end(ledger, account) + _judge_records(ledger, account)


def _judge_numbers(account: Account) -> list[str]:
    """Judge that the numbers of a publisher grow in each queue: nothing is taken twice."""
    problems = []
    running = account.start.copy()
    for entry in account.entries:
        for change in entry.changes:
            for (queue_id, _), (publisher, number) in change.numbers.items():
                before = running.publishers.get((queue_id, publisher), -1)
                if number <= before:
                    told = f"{number} of {publisher!r} after {before}"
                    problems.append(f"group {entry.number} lets queue {queue_id} take {told}")
            running.take(change)
    return problems


def _judge_batches(account: Account) -> list[str]:
    """Judge staged batches: a crash may keep any part of one group, and must not part a batch.

    So the decision is in a later group than all that was staged, what leaves a staging queue in a
    later one than the decision, and the end of the queue in a later one than what left it last.
    """
    problems = []
    before = account.start
    decided = dict.fromkeys(before.decided, 0)
    newest: dict[int, int] = {}
    for entry in account.entries:
        running = before.copy()
        for change in entry.changes:
            for key in change.adds:
                newest[key[0]] = entry.number
                if key[0] in decided:
                    problems.append(f"group {entry.number} stages {key} behind its decision")
            for key in _removed(change, running) if change.adds else ():
                staged = key[0] in running.staging
                if staged and decided.get(key[0], entry.number) >= entry.number:
                    problems.append(f"group {entry.number} releases {key} before its decision")
            running.take(change)
            for queue_id in running.decided - set(decided):
                decided[queue_id] = entry.number
                if newest.get(queue_id, -1) >= entry.number:
                    told = f"about queue {queue_id} with what is staged there"
                    problems.append(f"group {entry.number} decides {told}")
            left = {key[0] for key in before.messages} & change.queues_gone & set(decided)
            problems += [f"group {entry.number} deletes {queue}, not empty" for queue in left]
        before = entry.after
    return problems


def _judge_units(ledger: Ledger, account: Account) -> list[str]:
    """Judge that a transaction is one record, and so is a publish to several queues (I6)."""
    added: dict[int, set[int]] = {}
    removed: dict[Place, set[int]] = {}
    before, unit = account.start, 0
    for entry in account.entries:
        running = before.copy()
        for change in entry.changes:
            unit += 1
            moved = {number_of(running.messages[key][0][3]) for key in _removed(change, running)}
            for kept in change.adds.values():
                number = number_of(kept[3])
                if number not in moved:
                    added.setdefault(number, set()).add(unit)
            for key in _removed(change, running):
                number = number_of(running.messages[key][0][3])
                name = running.queues.get(key[0], ("", ""))[1]
                removed.setdefault((name, number), set()).add(unit)
            running.take(change)
        before = entry.after
    problems = [
        f"I6 {number} was published by {len(units)} records"
        for number, units in added.items()
        if len(units) > 1
    ]
    for _, commit in ledger.committed:
        units = {unit for number in commit.published for unit in added.get(number, ())}
        units |= {unit for place in commit.acked for unit in removed.get(place, ())}
        if len(units) > 1:
            problems.append(f"I6 the commit of {commit} was {len(units)} records")
    return problems


def _judge_end(ledger: Ledger, account: Account) -> list[str]:
    """Judge that in the end each message that nobody let go is in one queue, and in one only."""
    last = account.entries[-1].after if account.entries else account.start
    there = Counter(number_of(kept[3]) for kept, _ in last.messages.values())
    let_go = {number for _, number in ledger.let_go}
    problems = []
    for _, number in ledger.confirmed:
        queues = ledger.sent[number].queues
        if len(queues) != 1 or queues[0] in ledger.loose or number in let_go:
            continue
        if there[number] not in ledger.sent[number].ends:
            problems.append(f"I1 {number} is in {there[number]} queues in the end")
    return problems


def _births(account: Account) -> tuple[dict[Place, int], dict[Place, int]]:
    """Return the group that first held each message: by queue and number, and by its offset.

    What there was at the start has been durable ever since.
    """
    born: dict[Place, int] = {}
    offsets: dict[Place, int] = {}
    for (queue_id, offset), (kept, _) in account.start.messages.items():
        name = account.start.queues[queue_id][1]
        born[name, number_of(kept[3])] = offsets[name, offset] = 0
    names: dict[int, tuple[str, str]] = {}
    for entry in account.entries:
        names |= entry.after.queues
        for change in entry.changes:
            for (queue_id, offset), kept in change.adds.items():
                name = names.get(queue_id, ("", ""))[1]
                born.setdefault((name, number_of(kept[3])), entry.number)
                offsets.setdefault((name, offset), entry.number)
    return born, offsets


def _judge_commit(
    commit: Commit, ledger: Ledger, sure: Holding, born: dict[Place, int], durable: int
) -> list[str]:
    problems = []
    for number in commit.published:
        problems += [
            f"I6 {number} to '{queue}' was committed before it was durable"
            for queue in ledger.sent[number].queues
            if born.get((queue, number), 1 << 60) > durable
        ]
    for queue, number in commit.acked:
        prefix = b"%d:" % number
        if any(body.startswith(prefix) for body in sure.bodies(queue)):
            problems.append(f"I6 the ack of {number} of '{queue}' was committed and is not durable")
    return problems


def _judge_records(ledger: Ledger, account: Account) -> list[str]:
    """Judge each record: what it adds was sent, what it takes away somebody let go."""
    problems = []
    before = account.start
    for entry in account.entries:
        running = before.copy()
        for change in entry.changes:
            names = {**running.queues, **entry.after.queues}
            problems += [
                f"I2 group {entry.number} holds {kept[3][:20]!r}, which nobody sent so"
                for kept in change.adds.values()
                if not _as_sent(ledger, kept)
            ]
            problems += _judge_removals(ledger, entry, change, running, names)
            running.take(change)
        before = entry.after
    return problems


def _judge_removals(
    ledger: Ledger,
    entry: Entry,
    change: Change,
    running: Holding,
    names: dict[int, tuple[str, str]],
) -> list[str]:
    if not change.ranges:
        return []
    moved = {number_of(kept[3]) for kept in change.adds.values()}
    problems = []
    for key in _removed(change, running):
        queue = names.get(key[0], ("", ""))[1]
        number = number_of(running.messages[key][0][3])
        licensed = number in moved or queue in ledger.loose
        if not licensed and not ledger.let_go[queue, number]:
            problems.append(f"group {entry.number} drops {number} of '{queue}': nobody let it go")
    return problems


def _removed(change: Change, running: Holding) -> list[Key]:
    found = []
    for queue_id, first, last in change.ranges:
        if last - first < len(running.messages):
            keys = [(queue_id, sequence) for sequence in range(first, last + 1)]
            found += [key for key in keys if key in running.messages]
        else:
            found += [
                key for key in running.messages if key[0] == queue_id and first <= key[1] <= last
            ]
    return found


def _as_sent(ledger: Ledger, kept: Content) -> bool:
    """Whether a message is as it was sent, but for what the broker writes into some."""
    number = number_of(kept[3])
    sent = ledger.sent.get(number)
    if sent is None or sent.body != kept[3]:
        return False
    address = (sent.exchange.encode(), sent.key.encode())
    if (kept[0], kept[1], kept[2]) == (*address, sent.properties):
        return True
    return _plain(kept[2]) == _plain(sent.properties)


def _plain(raw: bytes) -> dict[str, object]:
    """Properties without what dead-lettering and delaying change."""
    properties = decode_properties(raw)
    properties.pop("expiration", None)
    headers = {
        name: value
        for name, value in properties.pop("headers", {}).items()
        if not name.startswith(BROKER_HEADERS)
    }
    return {**properties, "headers": headers}


def there(one: Identity) -> Callable[[Holding], bool]:
    """Return what tells whether a definition is there."""
    return lambda holding: one in holding.definitions


def offset_at(stream: str, reader: str, least: int, most: int) -> Callable[[Holding], bool]:
    """Return what tells whether the stored offset of a stream's named consumer is within these."""

    def holds(holding: Holding) -> bool:
        (queue_id,) = holding.queue_ids(stream)
        stored = holding.definitions.get(offset_identity(queue_id, reader.encode()), "-1")
        return least <= int(stored) <= most

    return holds


def queue_there(name: str, expected: bool) -> Callable[[Holding], bool]:
    """Return what tells whether a queue of that name is there (or is not)."""
    return lambda holding: bool(holding.queue_ids(name)) == expected
