"""The class confirm: publisher confirms, a RabbitMQ extension."""

from __future__ import annotations

from leveret.errors import PreconditionFailed
from leveret.session.channel.channel import CONFIRM, TX, ServerChannel
from leveret.wire.method import Method
from leveret.wire.methods import ConfirmSelect, ConfirmSelectOk


def handle_confirm(channel: ServerChannel, method: Method) -> bool:
    """Handle a method of class confirm; return False for one that clients do not send.

    Raises: PreconditionFailed (406) on a transactional channel (behaviour 28: no tx with confirms).
    """
    if not isinstance(method, ConfirmSelect):
        return False
    if channel.mode == TX:
        raise PreconditionFailed("cannot switch from tx to confirm mode")
    channel.mode = CONFIRM
    if not method.no_wait:
        channel.connection.send(channel.number, ConfirmSelectOk())
    return True
