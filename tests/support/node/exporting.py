"""The definitions of a broker or of a vhost, exported at once."""

from __future__ import annotations

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.broker import Broker
from leveret.broker.definitions.exports import definition_rows, sections_of, vhost_head


def export_definitions(broker: Broker) -> Arguments:
    """The definitions of the whole broker."""
    return {section: list(definition_rows(broker, None, section)) for section in sections_of(None)}


def export_vhost(broker: Broker, name: str) -> Arguments:
    """The definitions of one vhost.  Raises: NotFound (404)."""
    head = vhost_head(broker, name)
    rows = {section: list(definition_rows(broker, name, section)) for section in sections_of(name)}
    return {**head, **rows}
