"""Policies and operator policies: settings for all queues and exchanges with matching names.

A policy applies if the name matches its pattern.  Of the matching policies, only the one with the
highest priority applies (the first by name if there are several).  One operator policy, which users
cannot exceed, applies to a queue in the same way.  `vhost.policies` applies the policies of a
vhost, and `policies.keys` defines their keys.

Invariants: a policy never changes; setting it again creates a new object.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import NUMBER_MAX, Arguments
from leveret.broker.patterns.patterns import Pattern, compile_pattern
from leveret.broker.policies.keys import (
    check_definition,
    in_force,
    merge_operator,
    suits,
    utf8_size,
)
from leveret.broker.scheduler.accounts import POLICY_BYTES, table_bytes
from leveret.errors import PreconditionFailed
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.names import clean_argument

#: The valid targets of a policy; the names of the queue types are RabbitMQ's.
APPLY_TO: Final = ("all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams")

_TYPES: Final = {"classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream"}

#: The kind for exchanges, used in place of a queue type.
EXCHANGE: Final = "exchange"


@final
class Policy:
    """One policy or operator policy."""

    def __init__(
        self,
        name: str,
        pattern: str,
        definition: Arguments,
        priority: int,
        apply_to: str,
        compiled: Pattern | None,
        operator: bool,
    ) -> None:
        self.name: Final = name
        self.priority: Final = priority
        self.operator: Final = operator
        #: The part of the definition that has an effect.
        self.in_force: Final = in_force(definition, operator)
        self.pattern: Final = pattern
        self.definition: Final = definition
        self.apply_to: Final = apply_to
        #: None for a pattern of an earlier version that is no longer valid, and matches nothing.
        self._compiled: Final = compiled

    def memory(self) -> i64:
        """Return the bytes of memory of the policy."""
        size: i64 = 0 if self._compiled is None else self._compiled.memory()
        size += 2 * i64(len(self.name) + len(self.pattern))
        return size + POLICY_BYTES + 2 * table_bytes(self.definition)

    def without_effect(self) -> list[str]:
        """Return the keys of the definition that have no effect."""
        return [key for key in self.definition if key not in self.in_force]

    def before(self, other: Policy) -> bool:
        """Return whether this policy takes precedence if both match."""
        if self.priority != other.priority:
            return self.priority > other.priority
        return self.name < other.name

    def fits(self, name: str, kind: str, looks: i64) -> bool:
        """Return whether the policy applies to `name`; `kind` is a queue type or `EXCHANGE`.

        The pattern may make up to `looks` comparisons.  No policy applies to the default exchange.
        """
        if kind == EXCHANGE:
            applies = self.apply_to in ("all", "exchanges") and name != ""
        else:
            applies = (
                self.apply_to != "exchanges"
                and _TYPES.get(self.apply_to, kind) == kind
                and suits(self.definition, kind)
            )
        return applies and self._compiled is not None and self._compiled.matches(name, looks)

    def walked(self) -> i64:
        """Return the number of comparisons that the pattern has made so far."""
        return 0 if self._compiled is None else self._compiled.walked

    def record(self, vhost: str) -> dict[str, object]:
        """Return the policy in the form of its journal record."""
        return {
            "vhost": vhost,
            "name": self.name,
            "pattern": self.pattern,
            "apply_to": self.apply_to,
            "priority": self.priority,
            "definition": self.definition,
        }


def queue_type(arguments: Arguments) -> str:
    """Return the queue type in the arguments of a declare."""
    kind = arguments.get("x-queue-type")
    return kind if isinstance(kind, str) else "classic"


def make_policy(
    name: str,
    pattern: str,
    definition: Arguments,
    priority: int = 0,
    apply_to: str = "all",
    operator: bool = False,
    others: bool = False,
) -> Policy:
    """Return a policy, or an operator policy; `others` allows unknown keys.

    Raises: PreconditionFailed (406) for any invalid part.
    """
    definition = dict(definition)
    for key in ("dead-letter-exchange", "alternate-exchange"):
        clean_argument(definition, key)
    if not 0 < utf8_size(name) <= SHORT_STRING_BYTES_MAX:
        raise PreconditionFailed(f"a policy's name has 1 to {SHORT_STRING_BYTES_MAX} bytes")
    if apply_to not in APPLY_TO:
        raise PreconditionFailed(
            f"Validation failed: apply-to '{apply_to}' unrecognised; should be one of "
            f"{', '.join(APPLY_TO)}"
        )
    if abs(priority) > NUMBER_MAX:
        raise PreconditionFailed(f"Validation failed: {priority} is not a valid priority")
    utf8_size(pattern)
    check_definition(definition, operator, others)
    compiled = compile_pattern(pattern)
    return Policy(name, pattern, definition, priority, apply_to, compiled, operator)


def restored_policy(record: dict[str, object], operator: bool) -> Policy:
    """Return the policy or operator policy of a journal record, without validation."""
    definition = record.get("definition")
    priority = record.get("priority")
    pattern = str(record.get("pattern", ""))
    try:
        compiled: Pattern | None = compile_pattern(pattern)
    except PreconditionFailed:
        compiled = None
    return Policy(
        str(record.get("name", "")),
        pattern,
        definition if isinstance(definition, dict) else {},
        priority if isinstance(priority, int) else 0,
        str(record.get("apply_to", "all")),
        compiled,
        operator,
    )


def definition_in_force(policy: Policy | None) -> Arguments:
    """Return the part of a policy's definition that has an effect, empty for None."""
    return {} if policy is None else policy.in_force


def effective_definition(policy: Policy | None, operator: Policy | None) -> Arguments:
    """Return the merged definition of both policies, for listings."""
    return merge_operator(definition_in_force(policy), definition_in_force(operator))
