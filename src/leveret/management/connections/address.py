"""An address that a broker listens on, as the HTTP API shows it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ListenAddress:
    """A protocol by RabbitMQ's name (`amqp`, `amqp/ssl`, `http`, …), a host and a port.

    With TLS, `certificate` is the path of the certificate and `expires` its expiration (Unix time).
    """

    protocol: str
    host: str
    port: int
    certificate: str = ""
    expires: float | None = None
