"""Random exchanges, queues, bindings and messages, for a broker and for models that predict it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from leveret.client import BasicProperties
from leveret.client.blocking import Channel

KINDS = (
    "direct",
    "topic",
    "fanout",
    "headers",
    "x-consistent-hash",
    "x-modulus-hash",
    "x-super-stream",
)
WORDS = ("a", "b", "c", "")
TENANTS = ("one", "two", "three")


@dataclass(frozen=True)
class Sample:
    """A message to publish; its body is its number."""

    exchange: str
    routing_key: str
    headers: dict[str, object]

    @property
    def properties(self) -> BasicProperties:
        """The properties to publish it with."""
        return BasicProperties(headers=self.headers) if self.headers else BasicProperties()


@dataclass
class RandomTopology:
    """Exchanges and queues under one prefix, declared on a broker."""

    prefix: str
    seed: int
    exchanges: dict[str, str] = field(default_factory=dict)
    queues: list[str] = field(default_factory=list)

    def declare(self, channel: Channel) -> None:
        """Declare queues, exchanges with alternates, and bindings, also between exchanges."""
        chosen = random.Random(self.seed)
        self.queues = [f"{self.prefix}-q{n}" for n in range(8)]
        for name in self.queues:
            channel.queue_declare(name, durable=True)
        names = [f"{self.prefix}-e{n}" for n in range(12)]
        for number, name in enumerate(names):
            kind = KINDS[number % len(KINDS)]
            arguments: dict[str, object] = {}
            if chosen.random() < 0.5:
                arguments["alternate-exchange"] = chosen.choice(names)
            if kind == "x-consistent-hash" and chosen.random() < 0.5:
                arguments["hash-header"] = "tenant"
            channel.exchange_declare(name, kind, durable=True, arguments=arguments)
            self.exchanges[name] = kind
        for _ in range(50):
            self._bind(channel, chosen, names)

    def _bind(self, channel: Channel, chosen: random.Random, names: list[str]) -> None:
        source = chosen.choice(names)
        kind = self.exchanges[source]
        key = random_key(chosen, ("*", "#") if kind == "topic" else ())
        arguments: dict[str, object] = {}
        if kind == "x-consistent-hash":
            key = str(chosen.randint(1, 3))
        elif kind == "x-super-stream":
            key = str(chosen.randint(0, 2))
        elif kind == "headers":
            wanted = chosen.choice(TENANTS)
            arguments = {"tenant": wanted, "x-match": chosen.choice(("all", "any"))}
            if chosen.random() < 0.5:
                arguments["level"] = chosen.randint(1, 3)
        if chosen.random() < 0.3:
            channel.exchange_bind(chosen.choice(names), source, key, arguments=arguments)
        else:
            channel.queue_bind(chosen.choice(self.queues), source, key, arguments=arguments)

    def sample(self, count: int) -> list[Sample]:
        """Return messages to its exchanges and to the default one."""
        chosen = random.Random(self.seed + 1)
        samples = []
        for _ in range(count):
            exchange = chosen.choice([*self.exchanges, ""])
            key = random_key(chosen, ())
            if not exchange:
                key = chosen.choice([*self.queues, key])
            headers: dict[str, object] = {}
            if chosen.random() < 0.5:
                headers["tenant"] = chosen.choice(TENANTS)
            if chosen.random() < 0.3:
                headers["level"] = chosen.randint(1, 3)
            if chosen.random() < 0.2:
                headers["CC"] = [random_key(chosen, ()), chosen.choice(self.queues)]
            samples.append(Sample(exchange, key, headers))
        return samples

    def publish(self, channel: Channel, samples: list[Sample]) -> None:
        """Publish messages; `channel` is in confirm mode."""
        for number, sample in enumerate(samples):
            body = str(number).encode()
            channel.publish_nowait(body, sample.exchange, sample.routing_key, sample.properties)
        channel.wait_for_confirms()

    def taken(self, channel: Channel, count: int) -> list[list[str]]:
        """Return the queues that each of `count` messages is in, in order; empty the queues."""
        found: list[list[str]] = [[] for _ in range(count)]
        for name in sorted(self.queues):
            while (message := channel.get(name, no_ack=True)) is not None:
                found[int(message.body)].append(name)
        return found

    def delete(self, channel: Channel) -> None:
        """Delete the exchanges and queues."""
        for name in self.exchanges:
            channel.exchange_delete(name)
        for name in self.queues:
            channel.queue_delete(name)


def random_key(chosen: random.Random, wildcards: tuple[str, ...]) -> str:
    """Return a key of a few words."""
    return ".".join(chosen.choice((*WORDS, *wildcards)) for _ in range(chosen.randint(1, 3)))
