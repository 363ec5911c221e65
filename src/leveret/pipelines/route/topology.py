"""Reads a topology from a definitions file: the exchanges, queues and bindings of one vhost.

The file is one that Leveret or RabbitMQ has exported, of the whole broker or of one vhost.  Only
fields that matter for routing are checked.  Such files do not contain exclusive queues.

Invariant: a topology never changes, since it is pickled for Spark's workers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.pipelines.refusals import JobError

#: The exchanges that every vhost has, and that files do not contain.
PREDECLARED: Final = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}

#: The types of queues, and the value of `apply-to` in policies for each type.
_QUEUE_TYPES: Final = {"classic": "classic_queues", "quorum": "quorum_queues", "stream": "streams"}

DELAYED_TYPE: Final = "x-delayed-message"


class TopologyError(JobError):
    """A file contains no topology, or an unsupported one; the text names the place."""


@dataclass(frozen=True, slots=True)
class RecordedExchange:
    """An exchange; `kind` is its routing type, and `alternate` its alternate exchange."""

    name: str
    kind: str
    internal: bool = False
    alternate: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordedBinding:
    """A binding of `source` to a queue or to another exchange."""

    source: str
    destination: str
    to_queue: bool
    binding_key: str
    arguments: Mapping[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        kind = "queue" if self.to_queue else "exchange"
        arguments = f" {json.dumps(self.arguments, sort_keys=True)}" if self.arguments else ""
        return f"{self.source} -> {kind} {self.destination} [{self.binding_key}]{arguments}"


@dataclass(frozen=True, slots=True)
class RecordedTopology:
    """The exchanges, queues and bindings of one vhost; `name` is its label.

    `for_dead_letters` contains the dead-letter exchanges of queues, and all exchanges reachable
    from them.
    """

    name: str
    vhost: str
    exchanges: Mapping[str, RecordedExchange]
    queues: tuple[str, ...]
    bindings: tuple[RecordedBinding, ...]
    strict_keys: bool = False
    for_dead_letters: frozenset[str] = frozenset()


def read_topology(
    definitions: str | Path | Mapping[str, object], vhost: str | None = None
) -> RecordedTopology:
    """Return the topology of a vhost in a definitions file, or in its contents.

    `leveret ctl export_definitions`, or RabbitMQ's command of that name, makes such a file.
    `vhost` is needed only if several vhosts have queues, exchanges or bindings.

    Raises: TopologyError (a ValueError), with the position in the file.
    """
    if isinstance(definitions, Mapping):
        return _topology(definitions, "definitions", vhost)
    try:
        held: object = json.loads(Path(definitions).read_bytes())
    except OSError as error:
        raise TopologyError(f"{definitions}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TopologyError(f"{definitions}: this is not JSON: {error}") from None
    if not isinstance(held, dict):
        raise TopologyError(f"{definitions}: the definitions should be an object")
    return _topology(held, str(definitions), vhost)


def _topology(held: Mapping[str, object], name: str, wanted: str | None) -> RecordedTopology:
    if not any(section in held for section in ("queues", "exchanges", "bindings")):
        raise TopologyError(f"{name}: there are no queues, exchanges or bindings in it")
    vhost = _choose_vhost(held, name, wanted)
    sections = _Sections(held, name, vhost)
    queues = tuple(dict.fromkeys(_text(row, "name", where) for where, row in sections("queues")))
    policies = _policies(sections, "alternate-exchange", ("all", "exchanges"))
    exchanges = {
        exchange.name: exchange
        for exchange in (
            RecordedExchange(n, k, alternate=_alternate({}, n, policies))
            for n, k in PREDECLARED.items()
        )
    }
    for where, row in sections("exchanges"):
        exchange = _exchange(where, row, policies)
        exchanges[exchange.name] = exchange
    bindings = _bindings(sections, exchanges, frozenset(queues))
    dead = _behind(_dead_letter_exchanges(sections), exchanges, bindings)
    return RecordedTopology(
        name, vhost, exchanges, queues, bindings, _strict_keys(held, vhost), dead
    )


def _choose_vhost(held: Mapping[str, object], name: str, wanted: str | None) -> str:
    """Return the requested vhost, or the only vhost in the file.  Raises: TopologyError."""
    own = held.get("original_vhost_name")
    if isinstance(own, str):
        return own if wanted is None else wanted
    named = [
        row["vhost"]
        for section in ("queues", "exchanges", "bindings")
        for row in _rows(held, section, name)
        if isinstance(row.get("vhost"), str)
    ]
    listed = [row.get("name") for row in _rows(held, "vhosts", name)]
    vhosts = sorted({str(vhost) for vhost in (*named, *listed) if isinstance(vhost, str)})
    if wanted is not None:
        if vhosts and wanted not in vhosts:
            raise TopologyError(f"{name}: there is no vhost {wanted!r}; there are: {vhosts}")
        return wanted
    used = sorted(set(map(str, named)))
    if len(used) > 1:
        raise TopologyError(f"{name}: name a vhost, of these: {', '.join(used)}")
    return used[0] if used else "/"


class _Sections:
    """The rows of one vhost in a file, each with its place for error messages."""

    def __init__(self, held: Mapping[str, object], name: str, vhost: str) -> None:
        self._held = held
        self._name = name
        self._vhost = vhost

    def __call__(self, section: str) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield the rows of a section.  Raises: TopologyError."""
        for place, row in enumerate(_rows(self._held, section, self._name)):
            # In a file of one vhost, rows do not name it.
            if row.get("vhost", self._vhost) == self._vhost:
                yield f"{self._name}: {section}[{place}]", row


def _rows(held: Mapping[str, object], section: str, name: str) -> list[dict[str, object]]:
    rows = held.get(section, [])
    if not isinstance(rows, list):
        raise TopologyError(f"{name}: {section} should be a list")
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise TopologyError(f"{name}: {section}[{place}] should be an object")
    return rows


def _text(row: Mapping[str, object], key: str, where: str) -> str:
    value = row.get(key)
    if not isinstance(value, str):
        raise TopologyError(f"{where}: {key} should be a text, not {value!r}")
    return value


def _arguments(row: Mapping[str, object], where: str) -> dict[str, object]:
    """Return the arguments of a row; old versions of RabbitMQ export [] for an empty table."""
    value = row.get("arguments", {})
    if isinstance(value, dict):
        return value
    if value:
        raise TopologyError(f"{where}: arguments should be an object")
    return {}


# -- exchanges and policies ------------------------------------------------------------------------


def _exchange(where: str, row: Mapping[str, object], policies: list[_Policy]) -> RecordedExchange:
    name = _text(row, "name", where)
    kind = _text(row, "type", where)
    arguments = _arguments(row, where)
    if kind == DELAYED_TYPE:
        # Delayed messages are routed in the same way, only later.
        kind = _text(arguments, "x-delayed-type", where)
    internal = row.get("internal", False)
    if not isinstance(internal, bool):
        raise TopologyError(f"{where}: internal should be true or false")
    return RecordedExchange(name, kind, internal, _alternate(arguments, name, policies), arguments)


def _alternate(arguments: Mapping[str, object], name: str, policies: list[_Policy]) -> str:
    """Return the alternate exchange in the arguments, or else in the policy that applies."""
    own = arguments.get("alternate-exchange")
    if own is None:
        own = _of_policy("alternate-exchange", name, policies)
    return own if isinstance(own, str) else ""


def _dead_letter_exchanges(sections: _Sections) -> Iterator[str]:
    """Yield the dead-letter exchanges of queues."""
    of_type = {
        kind: _policies(sections, "dead-letter-exchange", ("all", "queues", word))
        for kind, word in _QUEUE_TYPES.items()
    }
    for where, row in sections("queues"):
        arguments = _arguments(row, where)
        own = arguments.get("x-dead-letter-exchange")
        if own is None:
            kind = str(arguments.get("x-queue-type") or row.get("type") or "classic")
            policies = of_type.get(kind, of_type["classic"])
            own = _of_policy("dead-letter-exchange", _text(row, "name", where), policies)
        if isinstance(own, str):
            yield own


def _behind(
    first: Iterator[str],
    exchanges: Mapping[str, RecordedExchange],
    bindings: tuple[RecordedBinding, ...],
) -> frozenset[str]:
    """Return the exchanges in `first`, and all exchanges that messages can reach from them."""
    follows: dict[str, list[str]] = {name: [one.alternate] for name, one in exchanges.items()}
    for binding in bindings:
        if not binding.to_queue:
            follows[binding.source].append(binding.destination)
    pending, found = [*first], set[str]()
    while pending:
        name = pending.pop()
        if name in exchanges and name not in found:
            found.add(name)
            pending += follows[name]
    return frozenset(found)


def _of_policy(key: str, name: str, policies: list[_Policy]) -> object:
    """Return the value of `key` in the policy that applies to `name`, or None."""
    for policy in policies:
        if policy.pattern.search(name):
            return policy.definition.get(key)
    return None


@dataclass(frozen=True, slots=True)
class _Policy:
    pattern: re.Pattern[str]
    definition: Mapping[str, object]


def _policies(sections: _Sections, key: str, apply_to: tuple[str, ...]) -> list[_Policy]:
    """Return the policies with one of these `apply-to` values, the highest priority first.

    The result is empty if none of them defines `key`.

    Raises: TopologyError for a pattern that is not a valid regex in Python.
    """
    found: list[tuple[int, str, str, Mapping[str, object], str]] = []
    for where, row in sections("policies"):
        if row.get("apply-to", "all") not in apply_to:
            continue
        definition = row.get("definition", {})
        if not isinstance(definition, dict):
            raise TopologyError(f"{where}: definition should be an object")
        priority = row.get("priority", 0)
        if not isinstance(priority, int):
            raise TopologyError(f"{where}: priority should be a number")
        pattern = _text(row, "pattern", where)
        found.append((-priority, _text(row, "name", where), pattern, definition, where))
    if not any(key in definition for _, _, _, definition, _ in found):
        return []
    policies: list[_Policy] = []
    for _, _, pattern, definition, where in sorted(found, key=lambda one: one[:2]):
        try:
            policies.append(_Policy(re.compile(pattern), definition))
        except re.error as error:
            raise TopologyError(f"{where}: the pattern {pattern!r}: {error}") from None
    return policies


# -- bindings --------------------------------------------------------------------------------------


def _bindings(
    sections: _Sections, exchanges: Mapping[str, RecordedExchange], queues: frozenset[str]
) -> tuple[RecordedBinding, ...]:
    """Return the bindings whose source and destination exist.

    Files also contain bindings of exclusive queues, but not these queues.
    """
    found: dict[str, RecordedBinding] = {}
    for where, row in sections("bindings"):
        kind = row.get("destination_type", "queue")
        if kind not in ("queue", "exchange"):
            raise TopologyError(f"{where}: destination_type should be queue or exchange")
        binding = RecordedBinding(
            _text(row, "source", where),
            _text(row, "destination", where),
            kind == "queue",
            _text({"routing_key": "", **row}, "routing_key", where),
            _arguments(row, where),
        )
        there = queues if binding.to_queue else exchanges.keys()
        if binding.source in exchanges and binding.destination in there:
            found[str(binding)] = binding
    return tuple(found.values())


def _strict_keys(held: Mapping[str, object], vhost: str) -> bool:
    """Return whether the vhost requires strict keys."""
    metadata = held.get("metadata")
    for row in _rows(held, "vhosts", "vhosts"):
        if row.get("name") == vhost:
            metadata = row.get("metadata")
    return isinstance(metadata, dict) and metadata.get("strict_keys") is True
