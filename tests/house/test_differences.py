"""Every difference from RabbitMQ that is expected has its reason, and every reason a difference."""

from __future__ import annotations

from differential import expected


def test_the_page_explains_every_expected_difference() -> None:
    assert expected.explained() == set(expected.read())
