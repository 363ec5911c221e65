"""The API's description of itself: it is OpenAPI 3.1, whole, and says what the routes do."""

from __future__ import annotations

import re
from typing import Any

import pytest

from leveret.client.blocking import Channel
from leveret.management import api as management
from support.hostile.hostile_requests import read_by
from support.http.http_api import Api

PART = re.compile(r"\{(\w+)\}")


@pytest.fixture
def document(api: Api) -> Any:
    """The document as it is served."""
    status, body, headers = api.answer("/api/openapi.json")
    assert (status, headers["content-type"]) == (200, "application/json")
    return body


def operations(document: Any) -> dict[tuple[str, str], Any]:
    """Return the operations by method and path."""
    return {
        (method.upper(), path): found
        for path, entry in document["paths"].items()
        for method, found in entry.items()
        if method != "parameters"
    }


def test_every_route_is_in_it_and_nothing_else(document: Any) -> None:
    served = {(one.method, one.path) for one in management.routes()}
    assert operations(document).keys() == served


def references(value: Any) -> list[str]:
    """Return all references within a document."""
    if isinstance(value, list):
        return [found for one in value for found in references(one)]
    if not isinstance(value, dict):
        return []
    here = [value["$ref"]] if "$ref" in value else []
    return here + [found for one in value.values() for found in references(one)]


def test_it_has_what_openapi_asks_for(document: Any) -> None:
    assert document["openapi"].startswith("3.1.")
    assert document["info"].keys() >= {"title", "version"}
    for reference in references(document):
        found: Any = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]
    ids = [found["operationId"] for found in operations(document).values()]
    assert len(set(ids)) == len(ids)
    for (method, path), found in operations(document).items():
        assert found["responses"], path
        for status, response in found["responses"].items():
            assert re.fullmatch("[1-5]([0-9]{2}|XX)", status), path
            assert "$ref" in response or response["description"], path
        assert found["summary"].endswith("."), path
        assert "requestBody" not in found or method in ("PUT", "POST"), path
    for path, entry in document["paths"].items():
        named = [one["name"] for one in entry.get("parameters", ())]
        assert named == PART.findall(path)
        assert all(one["in"] == "path" and one["required"] for one in entry.get("parameters", ()))


def test_every_body_is_described_with_the_fields_that_its_route_reads() -> None:
    for route in management.routes():
        assert route.method in ("PUT", "POST") or not route.body, route.path
        read, _ = read_by(route)
        assert read <= route.body.keys(), route.path
        assert set(route.required) <= route.body.keys(), route.path


def test_what_is_called_a_list_is_one(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.described")
    names = {"vhost": "%2F", "name": "q.described", "queue": "q.described", "user": "guest"}
    names |= {"component": "vhost-limits", "protocol": "amqp", "within": "1", "unit": "days"}
    seen = 0
    wrong = []
    for route in management.routes():
        path = PART.sub(lambda part: names.get(part[1], "none"), route.path)
        if route.method != "GET" or not path.startswith("/api/") or path.endswith("/chunks"):
            continue
        status, body, _ = api.answer(path)
        if status == 200:
            seen += 1
            if isinstance(body, list) != route.rows:
                wrong.append(route.path)
    assert wrong == []
    assert seen > 40
    channel.queue_delete("q.described")
