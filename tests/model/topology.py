"""Exchanges, bindings and routing of the reference broker."""

from __future__ import annotations

from dataclasses import replace

from model.claims import Claims
from model.exchange import DEFAULT, Binding, Exchange, Waiting
from model.heard import At
from model.queue import Message, Queue

BUILT_IN = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


class Topology(Claims):
    """What routes messages to queues."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges = {name: Exchange(name, kind) for name, kind in BUILT_IN.items()}
        self.queues: dict[str, Queue] = {}
        self.waiting: list[Waiting] = []

    def deadlines(self) -> list[int]:
        """When something ends by itself."""
        deadlines = [entry.expires_ms for queue in self.queues.values() for entry in queue.entries
                     if not entry.out and entry.expires_ms is not None]  # fmt: skip
        for queue in self.queues.values():
            expires = queue.argument("expires")
            if expires is not None and not queue.consumers:
                deadlines.append(queue.used_ms + expires)
        return deadlines + [one.due_ms for one in self.waiting]

    def refuse(self, at: At, code: int) -> None:
        """Claim the close of a channel and end the channel."""
        self.saw(f"close {code}")
        self.answer(at, "channel.close", code=code)
        self.release([at])

    def release(self, ats: list[At]) -> None:
        """End channels."""
        raise RuntimeError("a broker ends its channels")

    def declare_exchange(self, at: At, exchange: Exchange) -> None:
        """Make an exchange, or find it as it was declared."""
        there = self.exchanges.get(exchange.name)
        if there is not None and replace(there, bindings=[], history=[]) != exchange:
            self.refuse(at, 406)
            return
        self.exchanges.setdefault(exchange.name, exchange)
        self.answer(at, "exchange.declare-ok", may_wait=True)

    def delete_exchange(self, at: At, name: str) -> None:
        """Delete an exchange with the bindings from and to it."""
        if name in self.exchanges:
            self._delete(name)
        self.answer(at, "exchange.delete-ok", may_wait=True)

    def bind(self, at: At, binding: Binding) -> None:
        """Make a binding."""
        if not self.bindable(binding):
            self.refuse(at, 404)
            return
        if self._locked(at, binding):
            self.refuse(at, 405)
            return
        bindings = self.exchanges[binding.source].bindings
        new = binding not in bindings
        if new:
            bindings.append(binding)
        kind = "queue" if binding.to_queue else "exchange"
        self.answer(at, f"{kind}.bind-ok", may_wait=True)
        for message in self.exchanges[binding.source].history if new else []:
            if binding.to_queue:
                self.replay([self.queues[binding.destination]], message)
            else:
                self.replay(self.route(message, binding.destination), message)

    def replay(self, queues: list[Queue], message: Message) -> None:
        """Put a message of an exchange's history into queues."""
        raise RuntimeError("a broker puts messages into queues")

    def unbind(self, at: At, binding: Binding) -> None:
        """Remove a binding; one that is not there is fine."""
        if self._locked(at, binding):
            self.refuse(at, 405)
            return
        if binding.source in self.exchanges:
            self._unbind(binding)
        kind = "queue" if binding.to_queue else "exchange"
        self.answer(at, f"{kind}.unbind-ok", may_wait=True)

    def bindable(self, binding: Binding) -> bool:
        ends = self.queues if binding.to_queue else self.exchanges
        return binding.source in self.exchanges and binding.destination in ends

    def _locked(self, at: At, binding: Binding) -> bool:
        """Whether the queue is another connection's."""
        return binding.to_queue and self.queues[binding.destination].owner not in (None, at[0])

    def _unbind(self, binding: Binding) -> None:
        source = self.exchanges[binding.source]
        if binding not in source.bindings:
            return
        source.bindings.remove(binding)
        if source.auto_delete and not source.bindings:
            self._delete(source.name)

    def _delete(self, name: str) -> None:
        gone = self.exchanges.pop(name)
        self.waiting = [one for one in self.waiting if one.exchange is not gone]
        self.unbind_all(False, name)

    def unbind_all(self, to_queue: bool, name: str) -> None:
        for exchange in list(self.exchanges.values()):
            for binding in list(exchange.bindings):
                if binding.to_queue == to_queue and binding.destination == name:
                    self._unbind(binding)

    def route(self, message: Message, start: str | None = None) -> list[Queue]:
        """The queues that a message reaches, each once, from its exchange or another."""
        found: dict[Queue, None] = {}
        todo = [message.exchange if start is None else start]
        seen = set(todo)
        keys = message.keys + message.hidden
        while todo:
            name = todo.pop(0)
            if name == DEFAULT:
                found |= dict.fromkeys(self.queues[key] for key in keys if key in self.queues)
                continue
            matching = [
                binding for key in keys
                for binding in self.exchanges[name].matching(key, message.headers)
            ]  # fmt: skip
            next_ones = [binding.destination for binding in matching if not binding.to_queue]
            if not matching and self.exchanges[name].alternate in self.exchanges:
                next_ones = [self.exchanges[name].alternate]
            found |= {self.queues[one.destination]: None for one in matching if one.to_queue}
            todo += [one for one in dict.fromkeys(next_ones) if one not in seen]
            seen.update(next_ones)
        return list(found)
