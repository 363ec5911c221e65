"""Clients that publish in batches: they stage, commit, commit again, and abandon what they staged.

Invariant: a name of a staging queue is used once, as by attempts of a task.
"""

from __future__ import annotations

import json
from typing import Any

from leveret.broker.sinks.commit import COMMIT_KEY
from replay.acts import Acts
from replay.drive import CONFIRM, REPLIES_MAX
from replay.ledger import Sent, number_of, queue_there
from support.wire.raw_codec import properties, publish

SINKS = ("one", "two")


class BatchActs(Acts):
    """What the clients of a load with staged batches do."""

    def attempts(self, sink: str) -> dict[str, int]:
        """Return the staging queues of a sink that are not committed, with their batches."""
        found = {}
        for name, queue in self.machine.vhost.queues.by_name.items():
            if queue.arguments.get("x-staging-sink") == sink and not queue.kept:
                batch = queue.arguments["x-staging-batch"]
                assert isinstance(batch, int)
                found[name] = batch
        return found

    def highest(self, sink: str) -> int:
        """Return the highest batch that a sink has committed."""
        known = self.machine.staging.sinks.find(sink, "")
        return -1 if known is None else int(known.batch)

    def stage_some(self) -> None:
        """Stage messages of a batch, mostly of the next one, in a new queue or in one of before."""
        sink = self.chance.choice(SINKS)
        batch = max(self.highest(sink) + self.chance.choice((1, 1, 1, 1, 0, 2)), 0)
        names = [name for name, of in self.attempts(sink).items() if of == batch]
        if names and self.chance.random() < 0.6:
            name = self.chance.choice(names)
        else:
            self.number += 1
            self.ledger.staged = self.number
            name = f"staged-{self.number}"
            at, _ = self.ask(
                self.publisher, CONFIRM, "queue.declare", queue=name, durable=True,
                arguments={"x-staging-sink": sink, "x-staging-batch": batch},
            )  # fmt: skip
            self.ledger.promised.append((at, f"declare of '{name}'", queue_there(name, True)))
        for _ in range(self.chance.randint(1, 9)):
            self.stage(name)

    def stage(self, queue: str) -> None:
        """Stage one message, persistent or not."""
        exchange, key = self.chance.choice((("", "q1"), ("", "q2"), ("both", "")))
        headers: dict[str, Any] = {"x-staged-exchange": exchange, "x-staged-routing-key": key}
        if self.chance.random() < 0.3:
            headers["h"] = 1
        size = self.chance.choice(self.load.sizes)
        number = self.publish("", queue, size, delivery_mode=2, headers=headers)
        if exchange:
            # Staged it is in one queue, and in two when it is released.
            self.ledger.sent[number].ends = (1, 2)

    def commit(self) -> None:
        """Commit a batch: all that is staged of it, or some; sometimes of one that is committed."""
        sink = self.chance.choice(SINKS)
        attempts = self.attempts(sink)
        if not attempts:
            return
        batch = self.chance.choice(list(attempts.values()))
        names = [name for name, of in attempts.items() if of == batch]
        names = self.chance.sample(names, self.chance.randint(1, len(names)))
        known = batch <= self.highest(sink)
        # What is staged for lower batches goes with a commit, and so does what comes too late.
        gone = names if known else [name for name, of in attempts.items() if of < batch]
        for name in gone:
            self.forget(name)
        at = self.ask_commit(sink, batch, names)

        def committed(held: Any) -> bool:
            said = held.definitions.get(("sink", "/", sink), "batch -1")
            return int(said.removeprefix("batch ")) >= batch

        self.ledger.promised.append((at, f"commit of {batch} of '{sink}'", committed))

    def ask_commit(self, sink: str, batch: int, names: list[str]) -> int:
        """Publish a commit and wait until it is confirmed; return the length of the trace then."""
        self.number += 1
        number = self.number
        body = json.dumps({"sink": sink, "batch": batch, "queues": names}).encode()
        self.ledger.sent[number] = Sent("", COMMIT_KEY, properties(), body, False, ())
        self.confirm_tag += 1
        tag = self.confirm_tag
        self.unconfirmed[tag] = number
        self.publisher.send(publish(CONFIRM, "", COMMIT_KEY, body))
        self.listen()
        for _ in range(REPLIES_MAX):
            if tag not in self.unconfirmed:
                return self.machine.trace_length()
            self.sync()
        raise AssertionError("a commit is not confirmed")

    def abandon(self) -> None:
        """Delete what was staged."""
        names = [name for sink in SINKS for name in self.attempts(sink)]
        if names:
            name = self.chance.choice(names)
            self.forget(name)
            at, _ = self.ask(self.publisher, CONFIRM, "queue.delete", queue=name)
            self.ledger.promised.append((at, f"delete of '{name}'", queue_there(name, False)))

    def forget(self, name: str) -> None:
        """Note that what is staged in a queue is about to go with it."""
        self.ledger.loose.add(name)
        for item in self.machine.waiting(name).ready.waiting():
            self.ledger.let_go[name, number_of(item.message.body)] += 1
        for number, sent in self.ledger.sent.items():
            if sent.key == name:
                self.ledger.let_go[name, number] += 1

    def finish(self) -> None:
        """Wait until all that was committed is released."""
        for _ in range(REPLIES_MAX):
            sinks = self.machine.staging.sinks.by_place.values()
            if not any(sink.releases for sink in sinks):
                return
            self.sync()
        raise AssertionError("a committed batch is not released")
