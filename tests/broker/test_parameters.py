"""Runtime parameters and global ones: what may be set, who hears of it, what a restart finds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker.parameters import RuntimeParameters
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import PARAMETER_BYTES_MAX, PARAMETERS_MAX
from support.brokers.broker_restarts import RESTARTS
from support.node.core import Node

VALUES: list[object] = [
    None,
    True,
    -1,
    2**62,
    2.5,
    "text",
    "",
    [1, "two", None, [True]],
    {"name": "green", "mix": [1, 2.5, None], "deep": {"er": {}}},
]


@pytest.fixture
def parameters(node: Node) -> RuntimeParameters:
    return node.broker.parameters


def test_a_parameter_of_an_unknown_component_is_only_kept(parameters: RuntimeParameters) -> None:
    parameters.set("/", "colour", "wall", "green", True)
    parameters.set("/", "colour", "wall", {"red": 5}, True)
    with pytest.raises(PreconditionFailed, match="component colour not found"):
        parameters.set("/", "colour", "wall", "none")
    assert parameters.of_vhost("/") == [("colour", "wall", {"red": 5})]
    parameters.clear("/", "colour", "wall")
    assert parameters.of_vhost("/") == []


def test_operator_policies_and_limits_are_parameters(
    node: Node, parameters: RuntimeParameters
) -> None:
    value = {"pattern": "^t", "definition": [["max-length", 9]], "priority": 2, "apply-to": "all"}
    parameters.set("/", "operator_policy", "o", value)
    parameters.set("/", "vhost-limits", "limits", [["max-queues", 5]])
    assert node.vhost.policies.operator_by_name["o"].definition == {"max-length": 9}
    assert node.vhost.limits.by_name == {"max-queues": 5}
    assert parameters.of_vhost("/") == [
        ("operator_policy", "o", {**value, "definition": {"max-length": 9}}),
        ("vhost-limits", "limits", {"max-queues": 5}),
    ]
    parameters.clear("/", "operator_policy", "o")
    parameters.clear("/", "vhost-limits", "limits")
    assert (node.vhost.policies.operator_by_name, node.vhost.limits.by_name) == ({}, {})


@pytest.mark.parametrize(
    ("component", "name", "value", "text"),
    [
        ("shovel", "s", {}, "component shovel not found"),
        ("shovel", "", {}, "name has 1 to 255 bytes"),
        ("shovel", "s", {"uri": 2**70}, "cannot be kept"),
        ("shovel", "s", "x" * PARAMETER_BYTES_MAX, "at most 65536 bytes"),
        ("c" * 256, "s", {}, "name has 1 to 255 bytes"),
        ("", "s", {}, "name has 1 to 255 bytes"),
        ("policy", "p", {}, "policies may not be set using this method"),
        ("colour", "", 1, "name has 1 to 255 bytes"),
        ("colour", "n" * 256, 1, "name has 1 to 255 bytes"),
        ("colour", "n", 2**70, "cannot be kept"),
        ("colour", "n", {"k" * 256: 1}, "cannot be kept"),
        ("colour", "n", "x" * PARAMETER_BYTES_MAX, "at most 65536 bytes"),
        ("vhost-limits", "other", {"max-queues": 1}, "is named 'limits'"),
        ("vhost-limits", "limits", 5, "limits should be an object"),
        ("vhost-limits", "limits", [5], "limits should be an object"),
        ("vhost-limits", "limits", {"max-queues": "a"}, "should be a number"),
        ("operator_policy", "o", {"pattern": "a"}, "Key 'definition' not found in o"),
        ("operator_policy", "o", {"definition": {}}, "Key 'pattern' not found in o"),
        ("operator_policy", "o", {"pattern": "a", "more": 1}, "Unrecognised term 'more' in o"),
        ("operator_policy", "o", "x", "should be an object"),
        ("operator_policy", "o", {"pattern": 1, "definition": {}}, "should be strings"),
        (
            "operator_policy",
            "o",
            {"pattern": "a", "definition": {"expires": 1}, "priority": "x"},
            "priority should be a number",
        ),
        ("operator_policy", "o", {"pattern": "a", "definition": {"max-age": "1D"}}, "max-age"),
    ],
)
def test_what_cannot_be_set(
    parameters: RuntimeParameters, component: str, name: str, value: object, text: str
) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        parameters.set("/", component, name, value)
    assert parameters.of_vhost("/") == []


def test_what_is_not_there(parameters: RuntimeParameters) -> None:
    with pytest.raises(NotFound, match="no vhost 'no'"):
        parameters.set("no", "colour", "n", 1, True)
    with pytest.raises(NotFound, match="no vhost 'no'"):
        parameters.of_vhost("no")
    for component, name in [("colour", "n"), ("operator_policy", "n"), ("vhost-limits", "limits")]:
        with pytest.raises(NotFound):
            parameters.clear("/", component, name)
    with pytest.raises(NotFound, match="no global parameter 'n'"):
        parameters.clear_global("n")


def test_parameters_have_a_limit(parameters: RuntimeParameters) -> None:
    for number in range(PARAMETERS_MAX):
        parameters.set("/", "colour", f"{number}", 1, True)
        parameters.set_global(f"{number}", 1)
    parameters.set("/", "colour", "0", 2, True)
    parameters.set_global("0", 2)
    with pytest.raises(PreconditionFailed, match="at most 4096 parameters"):
        parameters.set("/", "colour", "more", 1, True)
    with pytest.raises(PreconditionFailed, match="at most 4096 global parameters"):
        parameters.set_global("more", 1)


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("restart", RESTARTS)
def test_values_survive(node: Node, restart: Callable[[Node], Node], value: object) -> None:
    node.broker.add_vhost("shop")
    for vhost in ("/", "shop"):
        node.broker.parameters.set(vhost, "colour", "wall", value, True)
        node.broker.parameters.set(vhost, "colour", "gone", value, True)
        node.broker.parameters.clear(vhost, "colour", "gone")
    node.broker.parameters.set_global("sky", value)
    node.broker.parameters.set_global("gone", value)
    node.broker.parameters.clear_global("gone")
    found = restart(node).broker.parameters
    assert found.global_values == {"sky": value}
    assert found.of_vhost("/") == found.of_vhost("shop") == [("colour", "wall", value)]


@pytest.mark.parametrize("restart", RESTARTS)
def test_a_deleted_vhost_takes_its_parameters_along(
    node: Node, restart: Callable[[Node], Node]
) -> None:
    node.broker.add_vhost("shop")
    node.broker.parameters.set("shop", "colour", "wall", 1, True)
    node.broker.parameters.set("shop", "operator_policy", "o", {
        "pattern": "a", "definition": {"expires": 1}, "priority": 0,
    })  # fmt: skip
    node.broker.delete_vhost("shop")
    node.broker.add_vhost("shop")
    assert restart(node).broker.parameters.of_vhost("shop") == []
