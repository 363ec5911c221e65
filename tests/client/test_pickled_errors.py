"""Errors of the client arrive whole in another process, such as that of a process pool."""

from __future__ import annotations

import pickle

import pytest

from leveret.client import parse_uri
from leveret.client.errors import (
    ClientError,
    ConsumerCancelled,
    DeliveryLost,
    Nacked,
    Returned,
    TransactionLost,
    Unreachable,
)
from leveret.client.message import ReturnedMessage
from leveret.wire.methods import BasicReturn

RETURNED = ReturnedMessage(BasicReturn(312, "NO_ROUTE", "logs", "c.d"), b"\0\0", b"body")

#: Of each class with a constructor of its own.
ERRORS = [
    Unreachable([(parse_uri("amqp://one"), OSError(111, "refused"))]),
    DeliveryLost(7),
    TransactionLost(),
    Nacked([3, 4]),
    Returned([RETURNED]),
    ConsumerCancelled("c"),
]


def classes(of: type[ClientError]) -> set[type[ClientError]]:
    return {of}.union(*(classes(each) for each in of.__subclasses__()))


def test_each_class_with_a_constructor_of_its_own_is_here() -> None:
    own = {each for each in classes(ClientError) if "__init__" in vars(each)}
    assert own == {type(error) for error in ERRORS}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_when_unpickled(error: ClientError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 (it was made above)
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again).keys() == vars(error).keys()
    assert repr(vars(again)) == repr(vars(error))
