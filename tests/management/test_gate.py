"""The gate of the HTTP API on TCP: every route behind it asks what its user may do."""

from __future__ import annotations

import re

import pytest

from leveret.management.api import routes, users_routes
from leveret.management.rights import OPERATOR_ONLY, USER
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import unique
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port

ROUTES = [(route.method, route.path) for route in users_routes() if route.right is USER]


def test_no_route_is_declared_twice_and_those_of_the_operator_are_not_served_on_tcp() -> None:
    names = [(route.method, route.path) for route in routes()]
    assert len(names) == len(set(names))
    served = {(route.method, route.path) for route in users_routes()}
    assert set(names) - served == {("POST", "/api/backup")}
    assert [route.path for route in routes() if route.right is OPERATOR_ONLY] == ["/api/backup"]


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
