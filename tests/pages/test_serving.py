"""The broker serves the files of its page, each by one path, to anybody, and nothing else."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator

import pytest

from leveret.management.page import POLICY
from leveret.pages.assets import FILES, assets
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.http_streams import http_port

ASSETS = assets()
FILE = "/ui/vendor/htm-preact.js"


@pytest.fixture
def http_(broker: BrokerProcess) -> Iterator[http.client.HTTPConnection]:
    """A connection of somebody who has not said who he is."""
    connection = http.client.HTTPConnection("127.0.0.1", http_port(broker), timeout=120)
    yield connection
    connection.close()


def asked(
    connection: http.client.HTTPConnection, path: str, method: str = "GET", **headers: str
) -> tuple[int, http.client.HTTPMessage, bytes]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=sent)
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def test_each_file_is_served_as_it_is_and_as_gzip(http_: http.client.HTTPConnection) -> None:
    for path, asset in ASSETS.items():
        status, headers, body = asked(http_, path)
        assert (status, body, headers["Content-Type"]) == (200, asset.body, asset.type), path
        assert headers["Content-Encoding"] is None
        status, headers, body = asked(http_, path, Accept_Encoding="br, gzip")
        assert (status, headers["Content-Encoding"]) == (200, "gzip"), path
        assert gzip.decompress(body) == asset.body
        assert headers["Vary"] == "Accept-Encoding"
    assert asked(http_, FILE, Accept_Encoding="gzip;q=0")[1]["Content-Encoding"] is None


def test_what_a_browser_has_is_not_sent_again(http_: http.client.HTTPConnection) -> None:
    _, headers, _ = asked(http_, FILE)
    assert headers["Cache-Control"] == "no-cache"
    tag = headers["ETag"]
    for tags in (tag, f"W/{tag}", f'"other", {tag}', "*"):
        status, headers, body = asked(http_, FILE, If_None_Match=tags)
        assert (status, body, headers["ETag"]) == (304, b"", tag)
    assert asked(http_, FILE, If_None_Match='"other"')[0] == 200


def test_each_answer_says_what_the_page_may_do(http_: http.client.HTTPConnection) -> None:
    for path in ASSETS:
        headers = asked(http_, path)[1]
        assert headers["Content-Security-Policy"] == POLICY, path
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


def test_head_has_the_same_headers_and_no_body(http_: http.client.HTTPConnection) -> None:
    _, headers, body = asked(http_, FILE)
    status, of_head, nothing = asked(http_, FILE, "HEAD")
    assert (status, nothing) == (200, b"")
    assert of_head["Content-Length"] == headers["Content-Length"] == str(len(body))


@pytest.mark.parametrize(
    "path",
    [
        "/ui/", "/ui", "/ui/vendor", "/ui/vendor/", "/ui/vendor/vendored.toml", "/ui/jobs/",
        "/ui/../assets.py", "/ui/vendor/../../assets.py", "/ui/%2e%2e/assets.py",
        "/ui/vendor%2fhtm-preact.js", "/ui/vendor/..%2f..%2f..%2fassets.py",
        "/ui//etc/passwd", "//etc/passwd", "/ui/vendor/htm-preact.js%00.css",
        "/ui/vendor/htm-preact.js/", "/ui/./vendor/htm-preact.js", "/ui/VENDOR/htm-preact.js",
        "/ui/vendor\\htm-preact.js", "/broker/index.html", "/index.html", "/ui/broker/index.html",
        "/ui/vendor/htm.LICENSE",
    ],
)  # fmt: skip
def test_no_other_path_is_a_file(http_: http.client.HTTPConnection, path: str) -> None:
    http_.putrequest("GET", path, skip_accept_encoding=True)
    http_.endheaders()
    answer = http_.getresponse()
    assert answer.status in (400, 401, 404)
    assert answer.headers["Content-Type"] == "application/json"
    assert b"def assets" not in answer.read()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_nothing_but_reading_is_answered(http_: http.client.HTTPConnection, method: str) -> None:
    assert asked(http_, FILE, method)[0] in (401, 404, 405)


def test_who_operates_the_broker_has_it_on_the_socket_too(api: Api) -> None:
    api.request("GET", FILE)
    answer = api.getresponse()
    assert (answer.status, answer.read()) == (200, (FILES / "vendor/htm-preact.js").read_bytes())
