"""AMQP URIs (https://www.rabbitmq.com/docs/uri-spec) and what their query may say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.uri import Parameters, parse_uri


def test_nothing_but_the_scheme_means_every_default() -> None:
    assert parse_uri("amqp://") == Parameters()
    assert parse_uri("amqp://") == Parameters(
        host="localhost", port=5672, username="guest", password="guest", vhost="/"
    )


def test_every_part() -> None:
    found = parse_uri("amqp://user:pass@host:10000/vhost")
    assert found == Parameters("host", 10000, "user", "pass", "vhost")


def test_every_part_is_percent_decoded() -> None:
    found = parse_uri("amqp://us%65r%61:p%40ss%2F@ho%61st:10000/v%2fh%C3%B6st")
    assert (found.username, found.password) == ("usera", "p@ss/")
    assert (found.host, found.vhost) == ("hoast", "v/höst")


@pytest.mark.parametrize("path", ["", "/", "/%2F", "/%2f"])
def test_no_path_and_a_bare_slash_mean_the_default_vhost(path: str) -> None:
    assert parse_uri(f"amqp://host{path}").vhost == "/"


def test_tls_has_its_own_port() -> None:
    assert parse_uri("amqps://host") == Parameters("host", 5671, tls=True)
    assert parse_uri("amqps://host:5672").port == 5672


def test_an_ipv6_address_stands_in_brackets() -> None:
    found = parse_uri("amqp://[::1]:5673/v")
    assert (found.host, found.port) == ("::1", 5673)
    assert str(found) == "amqp://guest@[::1]:5673/v"


def test_a_user_without_password_has_an_empty_one() -> None:
    found = parse_uri("amqp://someone@host")
    assert (found.username, found.password) == ("someone", "")


def test_the_query() -> None:
    uri = "amqp://?heartbeat=30&connection_timeout=1500&channel_max=100&frame_max=8192"
    found = parse_uri(uri)
    assert found.heartbeat_seconds == 30
    assert found.connection_timeout_ms == 1500
    assert found.channel_max == 100
    assert found.frame_max == 8192


def test_without_a_query_the_broker_chooses() -> None:
    found = parse_uri("amqp://host")
    assert found.heartbeat_seconds is None
    assert found.channel_max is None
    assert found.frame_max is None
    assert found.connection_timeout_ms == 10_000


@pytest.mark.parametrize(
    "uri",
    [
        "http://host",
        "amqp:host",
        "amqp:/host",
        "host",
        "",
        "amqp://host:port",
        "amqp://host:0",
        "amqp://host:65536",
        "amqp://host/a/b",
        "amqp://host/%ff",
        "amqp://%ff@host",
        "amqp://host/" + 256 * "v",
        "amqp://host#fragment",
        "amqp://host#",
        "amqp://[::1",
    ],
)
def test_what_is_no_amqp_uri(uri: str) -> None:
    with pytest.raises(ValueError, match="URI"):
        parse_uri(uri)


@pytest.mark.parametrize(
    "query",
    [
        "heartbeat=-1",
        "heartbeat=65536",
        "heartbeat=",
        "heartbeat=1.5",
        "heartbeat=1&heartbeat=2",
        "connection_timeout=0",
        "channel_max=65536",
        "frame_max=4095",
        "frame_max=2147483648",
        "frame_max=٣٣٣٣٣",
        "colour=blue",
    ],
)
def test_what_a_query_may_not_say(query: str) -> None:
    with pytest.raises(ValueError, match="query parameter"):
        parse_uri(f"amqp://host?{query}")


@pytest.mark.parametrize("key", ["cacertfile", "certfile", "keyfile", "verify", "cafile", "auth"])
def test_a_query_chooses_no_file_and_no_trust(key: str) -> None:
    with pytest.raises(ValueError, match="unknown query parameter"):
        parse_uri(f"amqps://host?{key}=/etc/passwd")


def test_no_text_shows_the_password() -> None:
    found = parse_uri("amqp://user:s3cret@host/v")
    assert "s3cret" not in repr(found)
    assert str(found) == "amqp://user@host:5672/v"


@pytest.mark.parametrize("character", ["/", "#", "?", "?x=1&", "[", "1?"])
@pytest.mark.parametrize("password", ["s3cret{}x", "{}s3cret", "1{}s3cret", "s3cret{}"])
def test_no_error_shows_a_password_that_was_not_escaped(character: str, password: str) -> None:
    error = refusal(f"amqp://user:{password.format(character)}@host")
    if error is not None:
        assert "s3cret" not in str(error)
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None


def refusal(uri: str) -> ValueError | None:
    """Return why `uri` is refused, or None."""
    try:
        parse_uri(uri)
    except ValueError as error:
        return error
    return None


@given(st.text())
def test_any_text_is_a_uri_or_a_value_error(text: str) -> None:
    for uri in (text, f"amqp://{text}"):
        try:
            parse_uri(uri)
        except ValueError:
            continue
