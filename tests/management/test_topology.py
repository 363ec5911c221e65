"""Declaring, binding and deleting over HTTP; status codes and headers are RabbitMQ's."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from leveret.client.blocking import Connection
from support.http.http_api import Api


def ok(api: Api, path: str) -> Any:
    """Return what a path holds."""
    status, body, _ = api.answer(path)
    assert status == 200, body
    return body


def bound(api: Api, path: str, body: object) -> str:
    """Bind; return the header Location."""
    api.request("POST", path, json.dumps(body))
    answer = api.getresponse()
    assert answer.status == 201, answer.read()
    answer.read()
    return str(answer.headers["Location"])


def test_a_queue_is_declared_and_deleted(api: Api) -> None:
    path = "/api/queues/%2F/q.put"
    body = {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
    assert api.change("PUT", path, body) == 201
    assert api.change("PUT", path, body) == 204
    queue = ok(api, path)
    assert (queue["durable"], queue["arguments"]) == (True, {"x-max-length": 5})
    status, answer = api.ask("PUT", path, {**body, "durable": False})
    assert isinstance(answer, dict)
    assert (status, answer["error"]) == (400, "bad_request")
    assert "inequivalent arg 'durable'" in answer["reason"]
    assert api.ask("PUT", "/api/queues/%2F/amq.mine", body)[0] == 401
    assert api.ask("PUT", "/api/queues/%2F/q.bad", {"durable": "perhaps"})[0] == 400
    assert api.ask("PUT", "/api/queues/%2F/q.bad", {"arguments": 5})[0] == 400
    assert api.ask("PUT", "/api/queues/nowhere/q", body)[0] == 404
    assert api.change("POST", f"{path}/actions", {"action": "sync"}) == 204
    assert api.ask("POST", f"{path}/actions", {"action": "dance"})[0] == 400
    assert api.change("DELETE", path) == 204
    assert api.answer(path)[0] == 404


def test_an_exchange_is_declared_and_deleted(api: Api) -> None:
    path = "/api/exchanges/%2F/x.put"
    body = {"type": "topic", "durable": True, "arguments": {}}
    assert api.change("PUT", path, body) == 201
    assert api.change("PUT", path, body) == 204
    assert ok(api, path)["type"] == "topic"
    assert api.ask("PUT", path, {**body, "type": "fanout"})[0] == 400
    assert api.ask("PUT", "/api/exchanges/%2F/x.bad", {"type": "square"})[0] == 400
    assert ok(api, "/api/exchanges/%2F/amq.default")["name"] == ""
    assert api.ask("DELETE", "/api/exchanges/%2F/amq.direct")[0] == 401
    assert api.ask("DELETE", "/api/exchanges/%2F/x.none")[0] == 404
    assert api.change("PUT", "/api/queues/%2F/q.user", {}) == 201
    bound(api, "/api/bindings/%2F/e/x.put/q/q.user", {"routing_key": "k"})
    assert api.ask("DELETE", f"{path}?if-unused=true")[0] == 400
    assert api.change("DELETE", path) == 204
    assert api.change("DELETE", "/api/queues/%2F/q.user") == 204


@pytest.mark.parametrize("kind", ["q", "e"])
def test_ends_are_bound_and_unbound(api: Api, kind: str) -> None:
    ends = "queues" if kind == "q" else "exchanges"
    name = quote("end ä/1", safe="")
    assert api.change("PUT", f"/api/{ends}/%2F/{name}", {"durable": True}) == 201
    path = f"/api/bindings/%2F/e/amq.topic/{kind}/{name}"
    for body, props in (
        ({"routing_key": "a.#"}, "a.%23"),
        ({"routing_key": ""}, "~"),
        ({"routing_key": "a b~c", "arguments": {"x": 1}}, None),
    ):
        where = bound(api, path, body)
        assert where.startswith(f"{name}/")
        # Relative to the last part of the path that was asked.
        one = f"/api/bindings/%2F/e/amq.topic/{kind}/{where}"
        row = ok(api, one)
        assert (row["routing_key"], row["arguments"]) == (
            body["routing_key"],
            body.get("arguments", {}),
        )
        assert props is None or row["properties_key"] == props
        assert ok(api, path) == [row]
        assert row in ok(api, "/api/exchanges/%2F/amq.topic/bindings/source")
        if kind == "q":
            assert row in ok(api, f"/api/queues/%2F/{name}/bindings")
        else:
            assert row in ok(api, f"/api/exchanges/%2F/{name}/bindings/destination")
        assert api.change("DELETE", one) == 204
        assert api.answer(one)[0] == 404
        assert ok(api, path) == []
    assert api.ask("POST", f"/api/bindings/%2F/e/x.none/{kind}/{name}", {})[0] == 404
    assert api.ask("POST", f"/api/bindings/%2F/e/amq.default/{kind}/{name}", {})[0] == 401
    assert api.change("DELETE", f"/api/{ends}/%2F/{name}") == 204


def test_the_default_exchange_has_a_binding_to_each_queue(api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/q.default", {}) == 201
    (row,) = ok(api, "/api/queues/%2F/q.default/bindings")
    assert (row["source"], row["routing_key"]) == ("", "q.default")
    assert ok(api, "/api/bindings/%2F/e/amq.default/q/q.default") == [row]
    assert row in ok(api, "/api/exchanges/%2F/amq.default/bindings/source")
    assert api.change("DELETE", "/api/queues/%2F/q.default") == 204


def test_a_connection_is_closed(api: Api, connection: Connection) -> None:
    rows = ok(api, "/api/connections/username/guest")
    (row,) = [row for row in rows if row.get("user_provided_name") == "tester"]
    path = f"/api/connections/{quote(row['name'], safe='')}"
    api.request("DELETE", path, headers={"X-Reason": "time to go \xff"})
    answer = api.getresponse()
    assert (answer.status, answer.read()) == (204, b"")
    # Until its client has answered the close it is shown as closing.
    status, body, _ = api.answer(path)
    assert isinstance(body, dict)
    assert status == 404 or body["state"] == "closing"
    assert api.ask("DELETE", "/api/connections/none")[0] == 404


def test_lists_have_pages_and_an_order(api: Api) -> None:
    for number in range(7):
        path = f"/api/queues/%2F/page.{number}"
        assert api.change("PUT", path, {"durable": number % 2 == 0}) == 201
    base = "/api/queues/%2F?name=PAGE&page_size=3"
    page = ok(api, f"{base}&page=1&columns=name,message_stats.publish")
    items = page.pop("items")
    assert page.pop("total_count") >= 7
    assert page == {
        "filtered_count": 7,
        "item_count": 3,
        "page": 1,
        "page_count": 3,
        "page_size": 3,
    }
    assert items == [{"name": f"page.{n}", "message_stats": {"publish": 0}} for n in range(3)]

    def names(query: str) -> list[str]:
        return [row["name"][-1] for row in ok(api, f"{base}&{query}")["items"]]

    assert names("page=3") == ["6"]
    assert names("page=1&sort_reverse=true") == ["6", "5", "4"]
    assert names("page=1&sort=durable") == ["1", "3", "5"]
    assert names("page=2&sort=durable&sort_reverse=true") == ["0", "5", "3"]
    regex = "/api/queues/%2F?page=1&use_regex=true&pagination=false&name=%5Epage%5C.%5B12%5D"
    assert [row["name"] for row in ok(api, regex)["items"]] == ["page.1", "page.2"]
    for query in ("page=0", "page=x", "page=1&page_size=501", "page=1&page_size=0", "page=9"):
        status, body, _ = api.answer(f"{base.partition('&')[0]}&{query}")
        assert isinstance(body, dict)
        assert status == 400, query
        assert body["error"] == ("page_out_of_range" if query == "page=9" else "bad_request")
    ordered = ok(api, "/api/queues?sort=name&columns=name")
    assert ordered == sorted(ordered, key=lambda row: row["name"])
    for number in range(7):
        assert api.change("DELETE", f"/api/queues/%2F/page.{number}") == 204


def test_a_plus_may_be_a_space(api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/a%20b", {}) == 201
    assert ok(api, "/api/queues/%2F/a+b")["name"] == "a b"
    assert api.change("PUT", "/api/queues/%2F/a+b", {}) == 201
    assert ok(api, "/api/queues/%2F/a+b")["name"] == "a+b"
    for name in ("a+b", "a%20b"):
        assert api.change("DELETE", f"/api/queues/%2F/{name}") == 204


def test_users_without_permissions_are_listed_and_deleted_together(api: Api) -> None:
    for name in ("one", "two"):
        assert api.change("PUT", f"/api/users/{name}", {"password_hash": "", "tags": ""}) == 201
    rows = ok(api, "/api/users/without-permissions")
    assert {"one", "two"} <= {row["name"] for row in rows}
    assert "guest" not in {row["name"] for row in rows}
    assert api.ask("POST", "/api/users/bulk-delete", {"users": "one"})[0] == 400
    assert api.change("POST", "/api/users/bulk-delete", {"users": ["one", "two", "none"]}) == 204
    assert api.answer("/api/users/one")[0] == 404


def test_a_vhost_is_protected_from_deletion(api: Api) -> None:
    assert api.change("PUT", "/api/vhosts/kept", {}) == 201
    assert api.change("POST", "/api/vhosts/kept/deletion/protection") == 204
    assert ok(api, "/api/vhosts/kept")["protected_from_deletion"]
    assert api.ask("DELETE", "/api/vhosts/kept")[0] == 400
    assert api.change("DELETE", "/api/vhosts/kept/deletion/protection") == 204
    assert api.change("DELETE", "/api/vhosts/kept") == 204


def test_vhosts_are_listed_and_sorted_by_their_messages(api: Api, connection: Connection) -> None:
    assert api.change("PUT", "/api/vhosts/without", {}) == 201
    channel = connection.channel()
    channel.confirm_select()
    channel.queue_declare("counted", durable=True)
    channel.publish(b"x", "", "counted")
    rows = ok(api, "/api/vhosts?columns=name,messages_ready")
    ready = {row["name"]: row["messages_ready"] for row in rows}
    assert ready["/"] > 0
    assert ready["without"] == 0
    rows = ok(api, "/api/vhosts?columns=name&sort=messages&sort_reverse=true")
    names = [row["name"] for row in rows]
    assert names.index("/") < names.index("without")
    channel.queue_delete("counted")
    assert api.change("DELETE", "/api/vhosts/without") == 204


def test_the_settings_in_effect_hold_no_secret(api: Api) -> None:
    found = ok(api, "/api/config/effective")
    assert "default_pass" not in found
    assert found["default_user"] == "guest"
    assert "port" in found


def test_federation_and_shovels_are_refused_but_in_definitions(api: Api) -> None:
    value = {"uri": "amqp://there"}
    for component in ("federation-upstream", "shovel"):
        path = f"/api/parameters/{component}/%2F/up"
        status, answer = api.ask("PUT", path, {"value": value})
        assert (status, f"component {component} not found" in str(answer)) == (400, True)
        entry = {"vhost": "/", "component": component, "name": "up", "value": value}
        status, report = api.ask("POST", "/api/definitions", {"parameters": [entry]})
        assert (status, f"unknown component '{component}'" in str(report)) == (200, True)
        row = ok(api, path)
        assert (row["value"], row["running"]) == (value, False)
        assert api.change("DELETE", path) == 204
    # The policy of the same feature has the same answer.
    policy = {"pattern": "^q", "definition": {"federation-upstream-set": "all"}}
    assert api.ask("PUT", "/api/policies/%2F/up", policy)[0] == 400


def test_samples_are_shown_where_they_are_asked_for(api: Api) -> None:
    assert api.change("PUT", "/api/queues/%2F/q.samples", {}) == 201
    query = "lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5"
    queue = ok(api, f"/api/queues/%2F/q.samples?{query}")
    (sample,) = queue["messages_details"]["samples"]
    assert sample["sample"] == 0
    assert queue["message_stats"]["publish_details"]["samples"] == [sample]
    for wrong in ("lengths_age=60&lengths_incr=0", "lengths_age=9999&lengths_incr=1"):
        assert api.answer(f"/api/queues/%2F/q.samples?{wrong}")[0] == 400
    assert api.change("DELETE", "/api/queues/%2F/q.samples") == 204
