"""The policies of a virtual host: setting and clearing them, and who has which.

Whoever sets or clears one outside a connection's input lets the shell run the effects afterwards: a
shorter length drops messages, a longer TTL moves deadlines.

Invariants: a queue's and an exchange's `policy` is the one that counts for it at any time; each
change is journaled before it has an effect.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.policy.keys import merge_exchange_arguments, merge_queue_arguments
from leveret.broker.policy.policy import Policy, queue_type
from leveret.broker.queue.queue import Queue
from leveret.broker.topology.exchange import Exchange
from leveret.broker.values.applied_policy import AppliedPolicy
from leveret.broker.vhost.delays import Delays
from leveret.broker.vhost.state import VhostState
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import POLICIES_PER_VHOST_MAX


@final
class Policies:
    """The policies of one vhost, of its users and of its operator."""

    def __init__(
        self,
        vhost: VhostState,
        delays: Delays,
        queues: dict[str, Queue],
        exchanges: dict[str, Exchange],
    ) -> None:
        self._vhost: Final = vhost
        self._turn: Final = vhost.turn
        self._delays: Final = delays
        # All of the vhost, by their names.
        self._queues: Final = queues
        self._exchanges: Final = exchanges
        self.count_max: i64 = POLICIES_PER_VHOST_MAX
        self.by_name: dict[str, Policy] = {}
        self.operator_by_name: dict[str, Policy] = {}

    # -- setting and clearing ---------------------------------------------------------------------

    def set(self, policy: Policy) -> None:
        """Add a policy, or replace the one of its name; it applies at once.

        Raises: PreconditionFailed (406) when there are too many.
        """
        self._check_room(self.by_name, policy)
        self._turn.journal.define("policy", policy.record(self._vhost.name))
        old = self.by_name.get(policy.name)
        self.by_name[policy.name] = policy
        self._policy_changed(old, policy)

    def clear(self, name: str) -> None:
        """Remove a policy.  Raises: NotFound (404)."""
        old = self.by_name.get(name)
        if old is None:
            raise NotFound(f"no policy '{name}' in vhost '{self._vhost.name}'")
        self._turn.journal.delete("policy", {"vhost": self._vhost.name, "name": name})
        del self.by_name[name]
        self._policy_changed(old, None)

    def set_operator(self, policy: Policy) -> None:
        """Add an operator policy, or replace the one of its name; it applies at once.

        Raises: PreconditionFailed (406) when there are too many.
        """
        self._check_room(self.operator_by_name, policy)
        self._turn.journal.define("operator_policy", policy.record(self._vhost.name))
        old = self.operator_by_name.get(policy.name)
        self.operator_by_name[policy.name] = policy
        self._operator_policy_changed(old, policy)

    def clear_operator(self, name: str) -> None:
        """Remove an operator policy.  Raises: NotFound (404)."""
        old = self.operator_by_name.get(name)
        if old is None:
            raise NotFound(f"no operator policy '{name}' in vhost '{self._vhost.name}'")
        self._turn.journal.delete("operator_policy", {"vhost": self._vhost.name, "name": name})
        del self.operator_by_name[name]
        self._operator_policy_changed(old, None)

    def _check_room(self, policies: dict[str, Policy], policy: Policy) -> None:
        if policy.name not in policies and len(policies) >= self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} policies")

    # -- who has which ----------------------------------------------------------------------------

    def _policy_changed(self, old: Policy | None, new: Policy | None) -> None:
        """Give each queue and exchange the policy that counts now."""
        for queue in [one for one in self._queues.values() if not one.hidden]:
            found = _after_queue(queue, queue.policy, self.by_name, old, new)
            if found is not queue.policy:
                queue.policy = found
                self._configure_queue(queue)
        for exchange in list(self._exchanges.values()):
            current = exchange.policy
            found = current
            if current is not None and current is old:
                found = _best_for_exchange(exchange, self.by_name)
            elif new is not None and (current is None or new.before(current)):
                found = new if new.fits_exchange(exchange) else current
            if found is not current:
                exchange.policy = found
                self._configure_exchange(exchange)

    def _operator_policy_changed(self, old: Policy | None, new: Policy | None) -> None:
        """Give each queue the operator policy that counts now."""
        for queue in [one for one in self._queues.values() if not one.hidden]:
            found = _after_queue(queue, queue.operator_policy, self.operator_by_name, old, new)
            if found is not queue.operator_policy:
                queue.operator_policy = found
                self._configure_queue(queue)

    def govern_queue(self, queue: Queue) -> None:
        """Give a new queue its policies."""
        if queue.hidden or (not self.by_name and not self.operator_by_name):
            return
        queue.policy = _best_for_queue(queue, self.by_name)
        queue.operator_policy = _best_for_queue(queue, self.operator_by_name)
        if queue.policy is not None or queue.operator_policy is not None:
            self._configure_queue(queue)

    def govern_exchange(self, exchange: Exchange) -> None:
        """Give a new exchange its policy."""
        if self.by_name:
            exchange.policy = _best_for_exchange(exchange, self.by_name)
            if exchange.policy is not None:
                self._configure_exchange(exchange)

    def _configure_queue(self, queue: Queue) -> None:
        policy = queue.policy
        operator = queue.operator_policy
        if policy is None and operator is None:
            queue.configure(queue.arguments)
            return
        queue.configure(
            merge_queue_arguments(
                queue.arguments,
                {} if policy is None else policy.in_force,
                {} if operator is None else operator.in_force,
                queue_type(queue.arguments),
            )
        )

    def _configure_exchange(self, exchange: Exchange) -> None:
        policy = exchange.policy
        definition = {} if policy is None else policy.in_force
        exchange.configure(merge_exchange_arguments(exchange.arguments, definition))
        self._vhost.revision += 1
        self._delays.equip(exchange)

    # -- putting back, without journal and effects ------------------------------------------------

    def restore(self, policy: Policy, operator: bool) -> None:
        """Put a policy back; queues are made later, and exchanges get it by `govern_exchanges`."""
        (self.operator_by_name if operator else self.by_name)[policy.name] = policy

    def restore_cleared(self, name: str, operator: bool) -> None:
        """Take a policy out."""
        (self.operator_by_name if operator else self.by_name).pop(name, None)

    def govern_exchanges(self) -> None:
        """Give each exchange its policy: after a recovery."""
        for exchange in self._exchanges.values():
            self.govern_exchange(exchange)


def _best_for_queue(queue: Queue, policies: dict[str, Policy]) -> Policy | None:
    """Return the policy that counts for a queue; None where none matches."""
    best: Policy | None = None
    for policy in policies.values():
        if (best is None or policy.before(best)) and policy.fits_queue(queue):
            best = policy
    return best


def _after_queue(
    queue: Queue,
    current: AppliedPolicy | None,
    policies: dict[str, Policy],
    old: Policy | None,
    new: Policy | None,
) -> AppliedPolicy | None:
    """Return the policy that counts for a queue after `new` replaced `old` among `policies`.

    Most queues need no look at all policies: theirs is still there and before the new one.
    """
    if current is not None and current is old:
        return _best_for_queue(queue, policies)
    if new is not None and (current is None or new.before(current)) and new.fits_queue(queue):
        return new
    return current


def _best_for_exchange(exchange: Exchange, policies: dict[str, Policy]) -> Policy | None:
    """Return the policy that counts for an exchange; None where none matches."""
    best: Policy | None = None
    for policy in policies.values():
        if (best is None or policy.before(best)) and policy.fits_exchange(exchange):
            best = policy
    return best
