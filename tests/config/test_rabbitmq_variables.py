"""Variables of RabbitMQ that a broker does not read are named, with what to set instead."""

from __future__ import annotations

import pytest

from leveret.cli.settings.rabbitmq_variables import _OTHERS, _SETTINGS, without_effect
from leveret.config import RABBITMQ_VARIABLES, Settings


@pytest.mark.parametrize(
    ("variable", "remedy"),
    [
        ("RABBITMQ_NODE_IP_ADDRESS", "set LEVERET_HOST"),
        ("RABBITMQ_SSL_CERTFILE", "set LEVERET_TLS_CERTIFICATE"),
        ("RABBITMQ_MNESIA_BASE", "set LEVERET_DATA_DIR"),
        ("RABBITMQ_LOAD_DEFINITIONS", "set LEVERET_LOAD_DEFINITIONS"),
        (
            "RABBITMQ_CONFIG_FILE",
            (
                "convert the file with leveret config from-rabbitmq, and name the result in "
                "LEVERET_CONFIG_FILE"
            ),
        ),
        ("RABBITMQ_NODENAME", "there is no Erlang node and no cluster to configure"),
    ],
)
def test_a_variable_is_named_with_its_remedy(variable: str, remedy: str) -> None:
    assert list(without_effect({variable: "secret"})) == [(variable, remedy)]


@pytest.mark.parametrize(
    "environment",
    [
        {"RABBITMQ_DEFAULT_USER": "u", "RABBITMQ_NODE_PORT": "1"},
        {"RABBITMQ_SSL_CERTFILE": ""},
        {"RABBITMQ_SSL_CERTFILE": "a", "LEVERET_TLS_CERTIFICATE": "a"},
        {"RABBITMQ_PORT": "tcp://10.0.0.1:5672", "RABBITMQ_SERVICE_HOST": "10.0.0.1"},
        {"RABBITMQ_URL_OF_MY_APP": "amqp://host"},
        {"HOST": "h"},
    ],
)
def test_other_variables_are_not_named(environment: dict[str, str]) -> None:
    assert list(without_effect(environment)) == []


def test_the_remedies_are_settings() -> None:
    assert set(_SETTINGS.values()) <= set(Settings.model_fields)
    used = {name.removeprefix("RABBITMQ_") for name in RABBITMQ_VARIABLES.values()}
    assert not used & {*_SETTINGS, *_OTHERS}
