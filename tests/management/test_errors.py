"""Errors of the domain as HTTP has them; bodies and statuses are those of RabbitMQ 3.10.8."""

from __future__ import annotations

import json

import pytest

from leveret.errors import (
    AccessRefused,
    AmqpError,
    ContentTooLarge,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceLocked,
)
from leveret.management.routes.shared import error_response


@pytest.mark.parametrize(
    ("error", "status", "name", "reason"),
    [
        (PreconditionFailed("queue 'q' in vhost '/' not empty"), 400, "bad_request", ""),
        (ResourceLocked("cannot obtain exclusive access"), 400, "bad_request", ""),
        (NotAllowed("vhost v not found"), 400, "bad_request", ""),
        (AccessRefused("write access"), 401, "not_authorised", "Access refused."),
        (NotFound("no queue 'q'"), 404, "Object Not Found", "Not Found"),
        (ContentTooLarge("16 MiB"), 413, "request_entity_too_large", ""),
    ],
)
def test_errors_of_the_domain(error: AmqpError, status: int, name: str, reason: str) -> None:
    response = error_response(error)
    assert response.status == status
    assert isinstance(response.body, bytes)
    assert json.loads(response.body) == {"error": name, "reason": reason or error.text}
