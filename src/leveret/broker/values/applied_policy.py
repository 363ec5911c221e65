"""A policy as far as the queue or exchange that it is applied to knows it.

Invariant: a policy never changes; setting it again makes another one.
"""

from __future__ import annotations

from typing import Final

from leveret.broker.values.arguments import Arguments


class AppliedPolicy:
    """The name and the priority of a policy, and what of its definition has an effect here."""

    def __init__(self, name: str, priority: int, in_force: Arguments) -> None:
        self.name: Final = name
        self.priority: Final = priority
        #: The part of the definition that has an effect here.
        self.in_force: Final = in_force

    def before(self, other: AppliedPolicy) -> bool:
        """Tell whether this one counts where both match."""
        if self.priority != other.priority:
            return self.priority > other.priority
        return self.name < other.name
