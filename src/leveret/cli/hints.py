"""Remedies for frequent failures, in the words of the command line."""

from __future__ import annotations

import re
from typing import Final

#: Remedies for frequent reasons.
_HINTS: Final = (
    (
        r"(?:there is )?no queue '",
        "leveret list queues lists the queues, leveret declare queue creates one",
    ),
    (r"no exchange '", "leveret list exchanges lists them, leveret declare exchange creates one"),
    (
        r"no vhost '|vhost .* not found",
        "leveret ctl list_vhosts lists the vhosts, leveret ctl add_vhost creates one",
    ),
    (r"no user '", "leveret ctl list_users lists the users, leveret ctl add_user creates one"),
    (r"inequivalent arg ", "declare it as it is, or delete it first: leveret ctl delete_queue"),
    (
        r"(?:\w+ )?access to .* refused for user '",
        "leveret ctl list_user_permissions shows permissions, set_permissions changes them",
    ),
    (
        r"user_id property set to",
        "the tag impersonator allows it: leveret ctl set_user_tags USER TAG... sets all tags",
    ),
    (r"open .*: no such directory", "--data-dir names the broker's data directory"),
    (r"Login was refused", "check the user and the password in --uri or LEVERET_URI"),
)

#: The reply code and its name in front of a reason.
_REPLY: Final = re.compile(r"\d{3} [A-Z_]+ - ")


def hint_for(text: str) -> str:
    """Return the remedy for a frequent reason, or ""."""
    reason = _REPLY.sub("", text, count=1)
    return next((hint for start, hint in _HINTS if re.match(start, reason)), "")
