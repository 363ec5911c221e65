"""The rights that routes require on TCP: a tag, and access to the vhost of the path.

Each route declares its right (`api_route`).  The rights are RabbitMQ's.  The route's handler checks
permissions on a queue or an exchange as in AMQP (`gate.may_read` and its siblings), and filters
lists by vhost and user (`gate.seen_vhosts` and `gate.only_of`).

Some routes require a stricter right than in RabbitMQ, mostly because more depends on it here.  Only
administrators may change global parameters (which contain the limits of users), set limits and
operator policies as parameters, see the limits of users, and close other users' connections (in
RabbitMQ the tag `monitoring` is enough for this).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.broker.users.users import ADMINISTRATOR

MANAGEMENT_TAG: Final = "management"
POLICYMAKER_TAG: Final = "policymaker"
MONITORING_TAG: Final = "monitoring"

#: The tags that give access to more than streams.
MANAGING: Final = (MANAGEMENT_TAG, POLICYMAKER_TAG, MONITORING_TAG, ADMINISTRATOR)


@dataclass(frozen=True)
class Right:
    """The right that a route requires on TCP; the Unix socket requires none.

    The user needs one of `tags`, unless it is empty; `lacking` is the error for a user without one.
    A user with a tag of `everywhere` needs no permission in the vhost of the path, sees all vhosts
    in lists, and may learn which vhosts exist.
    """

    tags: tuple[str, ...]
    lacking: str
    everywhere: tuple[str, ...]


#: For any user, in accessible vhosts: streams and the objects that their use creates.
USER: Final = Right((), "", ())

#: For users with a tag, in accessible vhosts; changes also require permissions on the object.
MANAGEMENT: Final = Right(MANAGING, "Not management user", (ADMINISTRATOR,))

#: Read access for users with a tag, in accessible vhosts; with the tag `monitoring` or
#: `administrator`, in all vhosts.  Other users see only their own connections and channels.
LOOKING: Final = Right(MANAGING, "Not management user", (ADMINISTRATOR, MONITORING_TAG))

#: For users who monitor the whole broker.
MONITORING: Final = Right(
    (MONITORING_TAG, ADMINISTRATOR), "Not monitor user", (ADMINISTRATOR, MONITORING_TAG)
)

#: For users who set policies and parameters, in accessible vhosts.
POLICIES: Final = Right(
    (POLICYMAKER_TAG, ADMINISTRATOR), "User not authorised to access object", (ADMINISTRATOR,)
)

#: For administrators.
ADMINISTRATION: Final = Right((ADMINISTRATOR,), "Not administrator user", (ADMINISTRATOR,))

#: Not served on TCP at all.
OPERATOR_ONLY: Final = Right((), "operator", ())
