"""The rights that a route can need on TCP: a tag, and access to the vhost of the path.

Each route declares its right (`api_route`).  The rights are RabbitMQ's.  Permissions on a queue or
an exchange are checked by the route's handler, as in AMQP (`gate.may_read` and its siblings), and
so are the vhosts in a list (`gate.seen_vhosts` and `gate.only_of`).

The rights of the routes are stricter than RabbitMQ's in a few places, mostly because more depends
on them here.  Only administrators may change global parameters (they hold the limits of users), set
limits and operator policies as parameters, see the limits of users, and close other users'
connections (in RabbitMQ the tag `monitoring` is enough for this).
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
    """The right that a route needs on TCP; the Unix socket needs none.

    `tags`: the user needs one of these, if there are any; `lacking` is the error without.  A user
    with a tag of `everywhere` needs no permission in the vhost of the path, sees all vhosts in
    lists, and may know which vhosts exist.
    """

    tags: tuple[str, ...]
    lacking: str
    everywhere: tuple[str, ...]


#: Any user, in accessible vhosts: streams and the objects that their use creates.
USER: Final = Right((), "", ())

#: A user of the API, in accessible vhosts; a change needs permissions on the object.
MANAGEMENT: Final = Right(MANAGING, "Not management user", (ADMINISTRATOR,))

#: Read access to the same; with the tag `monitoring`, in every vhost.  Users see only their own
#: connections and channels, unless they see everything.
LOOKING: Final = Right(MANAGING, "Not management user", (ADMINISTRATOR, MONITORING_TAG))

#: Users with a view of the whole broker.
MONITORING: Final = Right(
    (MONITORING_TAG, ADMINISTRATOR), "Not monitor user", (ADMINISTRATOR, MONITORING_TAG)
)

#: Users who set policies and parameters in accessible vhosts.
POLICIES: Final = Right(
    (POLICYMAKER_TAG, ADMINISTRATOR), "User not authorised to access object", (ADMINISTRATOR,)
)

#: Administrators.
ADMINISTRATION: Final = Right((ADMINISTRATOR,), "Not administrator user", (ADMINISTRATOR,))

#: Not served on TCP at all.
OPERATOR_ONLY: Final = Right((), "operator", ())
