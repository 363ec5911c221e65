"""What `connect` takes: one address or several, and keyword arguments beside them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from leveret.client.addresses import addresses
from leveret.client.errors import Unreachable
from leveret.client.uri import Parameters, parse_uri
from leveret.limits import CLIENT_ADDRESSES_MAX


def only(uri: Any = None, **given: Any) -> Parameters:
    """Return the one address that is meant."""
    (found,) = addresses(uri, given)
    return found


# -- keyword arguments -----------------------------------------------------------------------------


def test_nothing_means_every_default() -> None:
    assert only() == Parameters()


def test_keyword_arguments_say_what_a_uri_says() -> None:
    found = only(
        host="mq.example",
        port=5673,
        virtual_host="orders",
        user="alice",
        password="s/e@c",
        heartbeat=30,
        timeout=1.5,
        channel_max=10,
        frame_max=8192,
    )
    uri = (
        "amqp://alice:s%2Fe%40c@mq.example:5673/orders"
        "?heartbeat=30&connection_timeout=1500&channel_max=10&frame_max=8192"
    )
    assert found == parse_uri(uri)


def test_tls_by_keyword_has_its_own_port() -> None:
    assert only(tls=True) == parse_uri("amqps://")
    assert only(tls=True, port=5672).port == 5672
    assert only(tls=False) == parse_uri("amqp://")
    assert only("amqps://host", port=5673).port == 5673


def test_keyword_arguments_add_to_a_uri() -> None:
    assert only("amqp://host/", virtual_host="v", heartbeat=0) == Parameters(
        "host", vhost="v", heartbeat_seconds=0
    )
    # No path and a bare slash leave the vhost to the argument; %2F names it.
    with pytest.raises(ValueError, match="virtual_host is given twice"):
        only("amqp://host/%2F", virtual_host="v")


def test_none_says_nothing() -> None:
    assert only("amqp://host:5673", port=None, host=None, tls=None) == Parameters("host", 5673)


def test_saying_the_same_twice_is_no_conflict() -> None:
    uri = "amqps://alice:secret@host:5671/v?heartbeat=3&connection_timeout=1500"
    found = only(
        uri,
        tls=True,
        user="alice",
        password="secret",
        host="host",
        port=5671,
        virtual_host="v",
        heartbeat=3,
        timeout=1.5,
    )
    assert found == parse_uri(uri)


@pytest.mark.parametrize(
    ("uri", "given", "text"),
    [
        ("amqp://one", {"host": "two"}, "host is given twice and differs: 'one' in the URI, 'two'"),
        ("amqp://:5673", {"port": 5672}, "port is given twice and differs: 5673 in the URI, 5672"),
        ("amqp://a@h", {"user": "b"}, "user is given twice and differs: 'a' in the URI, 'b'"),
        ("amqp://h?heartbeat=1", {"heartbeat": 2}, "heartbeat is given twice and differs: 1 in"),
        ("amqp://h?connection_timeout=1", {"timeout": 1}, "1 ms in the URI, 1000 ms in the key"),
        ("amqp://h", {"tls": True}, "begins with amqp:// but tls=True: write amqps://"),
        ("amqps://h", {"tls": False}, "begins with amqps:// but tls=False: write amqp://"),
    ],
)
def test_a_conflict_is_an_error_that_says_both(uri: str, given: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=r"given twice|begins with") as error:
        only(uri, **given)
    assert text in str(error.value)


def test_a_conflict_of_passwords_quotes_neither() -> None:
    with pytest.raises(ValueError, match="password is given twice") as error:
        only("amqp://a:hush@h", password="secret")
    assert "hush" not in str(error.value)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"port": 0}, ValueError),
        ({"port": 65_536}, ValueError),
        ({"port": "5672"}, TypeError),
        ({"port": True}, TypeError),
        ({"heartbeat": -1}, ValueError),
        ({"heartbeat": 65_536}, ValueError),
        ({"frame_max": 4095}, ValueError),
        ({"channel_max": 65_536}, ValueError),
        ({"timeout": 0}, ValueError),
        ({"timeout": float("nan")}, ValueError),
        ({"timeout": "1"}, TypeError),
        ({"virtual_host": "v" * 256}, ValueError),
        ({"virtual_host": 1}, TypeError),
        ({"host": ""}, ValueError),
        ({"tls": 1}, TypeError),
        ({"user": b"guest"}, TypeError),
    ],
)
def test_a_value_that_cannot_be_names_its_argument(
    given: dict[str, Any], kind: type[Exception]
) -> None:
    (name,) = given
    with pytest.raises(kind, match=name):
        only(**given)


def test_parameters_are_complete() -> None:
    parameters = Parameters("host", 5673)
    assert only(parameters) == parameters
    with pytest.raises(ValueError, match=r"port, user cannot .* dataclasses\.replace"):
        only(parameters, port=1, user="u")
    assert only(dataclasses.replace(parameters, port=1)).port == 1


# -- several addresses -----------------------------------------------------------------------------


def test_several_addresses_keep_their_order() -> None:
    one, two = "amqp://a", "amqps://b:1/v"
    wanted = (parse_uri(one), parse_uri(two))
    assert addresses([one, two], {}) == wanted
    assert addresses(f"{one},{two}", {}) == wanted
    assert addresses(f"{one}, {two}", {}) == wanted
    assert addresses((wanted[0], two), {}) == wanted


def test_a_comma_in_a_password_separates_nothing() -> None:
    assert only("amqp://u:a,b@host").password == "a,b"


def test_keyword_arguments_hold_for_every_address() -> None:
    found = addresses("amqp://a,amqp://b", {"user": "u", "password": "p", "heartbeat": 5})
    assert [(one.host, one.username, one.heartbeat_seconds) for one in found] == [
        ("a", "u", 5),
        ("b", "u", 5),
    ]


def test_an_empty_list_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one"):
        addresses([], {})


def test_the_number_of_addresses_is_limited() -> None:
    most = ["amqp://host"] * CLIENT_ADDRESSES_MAX
    assert len(addresses(most, {})) == CLIENT_ADDRESSES_MAX
    with pytest.raises(ValueError, match=str(CLIENT_ADDRESSES_MAX)):
        addresses([*most, "amqp://host"], {})


@pytest.mark.parametrize("wrong", [b"amqp://host", 5672, [5672], {"host": "h"}])
def test_what_is_no_address_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="an address must be a URI"):
        addresses(wrong, {})


def test_a_failure_names_every_address_and_no_password() -> None:
    failures = [
        (parse_uri("amqp://u:hush@a"), ConnectionRefusedError(111, "refused")),
        (parse_uri("amqp://u:hush@b:1"), TimeoutError()),
    ]
    error = Unreachable(failures)
    assert str(error) == (
        "none of 2 addresses answered: amqp://u@a:5672/%2F: [Errno 111] refused; "
        "amqp://u@b:1/%2F: TimeoutError"
    )
    assert error.failures[1] == ("amqp://u@b:1/%2F", failures[1][1])
