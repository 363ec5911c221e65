"""The gate of the HTTP API on TCP: every route behind it asks what its user may do."""

from __future__ import annotations

import re

import pytest

from leveret.management.api import routes, users_routes
from leveret.management.rights import OPERATOR, RIGHTS, USER, right_of
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port

ROUTES = [
    (route.method, route.path)
    for route in users_routes()
    if right_of(route.method, route.path) is USER
]


def test_every_route_says_what_it_asks_for() -> None:
    """Whoever adds a route adds a row to the table of rights, and rows to the hostile matrix."""
    there = {f"{route.method} {route.path}" for route in routes()}
    assert there == set(RIGHTS)
    served = {f"{route.method} {route.path}" for route in users_routes()}
    assert there - served == {name for name in RIGHTS if RIGHTS[name] is OPERATOR}


@pytest.fixture
def nobody(api: Api) -> str:
    """A user who may enter the vhost, and do nothing there."""
    name = unique("nobody")
    api.change(
        "PUT",
        f"/api/users/{name}",
        {"password": "secret", "tags": "management,monitoring,policymaker"},
    )
    rights = {"configure": "", "write": "", "read": ""}
    api.change("PUT", f"/api/permissions/%2F/{name}", rights)
    return name


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_who_may_do_nothing_gets_nothing(
    broker: BrokerProcess, nobody: str, method: str, path: str
) -> None:
    """Not even with a tag, but `administrator`, which takes charge of what others own."""
    assert "{vhost}" in path, "a route on TCP says whose permissions count"
    place = re.sub(r"\{\w+\}", "some", path.replace("{vhost}", "%2F"))
    with HttpUser(http_port(broker), nobody, "secret") as user:
        user.http.request(
            method, place, body='{"partitions": 2, "offset": 0}', headers=user.headers
        )
        response = user.http.getresponse()
        body = response.read()
    if method == "GET" and response.status == 200:
        assert body == b"[]"
    else:
        assert response.status == 403
