"""Features that the documentation lists as absent are absent: no name in Leveret refers to them.

Nobody updates a page of missing features when Leveret gets one of them.  So each item of such a
list has a pattern here that the name of an implementation would match: a module, a setting, a
command, a route, a policy key, a limit, or an exchange type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from leveret.broker.exchanges.types import EXCHANGE_TYPES
from leveret.broker.policies.keys import POLICY_KEYS
from leveret.broker.users.users import USER_LIMITS
from leveret.broker.vhost.limits import VHOST_LIMITS
from leveret.cli import app
from leveret.config import Settings
from leveret.management.api import routes
from support.commands.names_of import commands_of, settings_of

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "leveret"

#: The heading of a list, and an item of it.
SECTION = re.compile(r"^## (?:What is n|N)ot supported\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ITEM = re.compile(r"\*\*(.+?)\.?\*\*")

#: By page, the items of its list, each with the pattern of a name.
ABSENT = {
    "docs/reference/clients/compatibility.md": {
        "AMQP 1.0": r"amqp_?1|sql",
        "MQTT": "mqtt",
        "STOMP": "stomp",
        "the stream protocol": r"stream_(port|host|protocol)",
        "OAuth 2": "oauth|openid|jwt",
        "LDAP": "ldap",
        "clustering": r"join.cluster|peer.discovery|cluster.formation",
        "replicas": r"replica|raft",
        "federation": "federation",
        "shovels": "shovel",
        "the firehose": r"firehose|trace.on",
        "message interceptors": "interceptor",
    },
    "docs/explanation/security.md": {
        "The address of a client behind a proxy, without the PROXY protocol": r"forwarded",
        "Limits of rates": r"max.*rate|rate.?limit",
        "Expiring passwords": r"pass(word)?_?(age|expir|days)",
        "second factors": r"totp|second.?factor|mfa",
        "LDAP": "ldap",
        "OAuth": "oauth|openid|jwt",
        "revocation lists": r"\bcrl|revocation",
    },
}


def names() -> Iterator[str]:
    """Yield all existing names."""
    yield from (str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))
    yield from settings_of(Settings)
    yield from commands_of(typer.main.get_command(app), "leveret")
    yield from (one.path for one in routes())
    yield from (*POLICY_KEYS, *USER_LIMITS, *VHOST_LIMITS, *EXCHANGE_TYPES)


def there(pattern: str) -> list[str]:
    """Return the existing names that match a pattern."""
    return [name for name in names() if re.search(pattern, name, re.IGNORECASE)]


@pytest.mark.parametrize("page", ABSENT)
def test_each_absence_that_a_page_lists_has_a_pattern(page: str) -> None:
    found = SECTION.search((ROOT / page).read_text())
    assert found is not None
    assert set(ITEM.findall(found[1])) == set(ABSENT[page])


def test_every_list_of_absences_is_known() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    listing = {str(p.relative_to(ROOT)) for p in pages if SECTION.search(p.read_text())}
    assert listing == set(ABSENT)


@pytest.mark.parametrize("page", ABSENT)
def test_what_a_page_lists_as_absent_is_absent(page: str) -> None:
    found = {item: there(pattern) for item, pattern in ABSENT[page].items()}
    assert {item: hits for item, hits in found.items() if hits} == {}


def test_what_is_there_would_be_found() -> None:
    """These lists once included an HTTP API on TCP, and message limits."""
    for name in ("http_host", "max-message-bytes", "/api/policies", "x-random", "leveret shell"):
        assert there(re.escape(name)), name
