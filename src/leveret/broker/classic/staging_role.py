"""What a classic queue does otherwise while it is a staging queue; the staging room extends it.

A staging queue keeps what is published to it until its batch is committed.  Nobody consumes it, no
policy counts for it, and it belongs to one user.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.ownership import Owner, owner_fields
from leveret.broker.queue.queue import REFUSE


@mypyc_attr(allow_interpreted_subclasses=True)
class StagingRole:
    """The role of one staging queue."""

    def __init__(self) -> None:
        #: Who declared the queue.  An earlier release did not say who: the queue is then for
        #: whoever its name lets in.
        self.owner: Owner | None = None

    def admit(self) -> i64:
        """Judge a message that is published to the queue: TAKE, DROP or REFUSE."""
        return REFUSE

    def dispatch(self, limit: i64) -> bool:
        """Release up to `limit` messages; tell whether there is more to do at once."""
        return False

    def refuse_consumer(self) -> None:
        """Raises: AccessRefused (403): nobody consumes or browses what is staged."""

    def check_user(self, by: Owner | None) -> None:
        """Raises: AccessRefused (403) unless the queue is for `by`."""

    def check_free(self) -> None:
        """Raises: PreconditionFailed (406) for a queue whose batch is committed."""

    def definition(self) -> dict[str, object]:
        """Return what the record of the queue tells beside what that of any queue does."""
        return {}

    def drop(self) -> None:
        """Forget the queue: it is deleted."""


def staging_record(owner: Owner | None, made_ms: i64) -> dict[str, object]:
    """Return what the record of a staging queue tells beside what that of any queue does."""
    return {**owner_fields(owner), "made_ms": int(made_ms)}
