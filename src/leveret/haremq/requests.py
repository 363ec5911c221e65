"""The decoded requests of HareMQ's protocol, and the base class of the codec.

Each class is one request.  Its attributes are named like the fields; omitted fields are empty, 0 or
False.  Names, ids and bodies of publishes and acks are UTF-8 bytes.

The codec has a base class because not every broker has protobuf's package.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import final

from mypy_extensions import i64, mypyc_attr

from leveret.haremq.fields import identity_of


class HareRequest:
    """A request; `identity` is the start of its response."""

    def __init__(self, rid: bytes, cid: bytes) -> None:
        self.identity = identity_of(rid, cid)
        self.rid = rid
        self.cid = cid


@final
class OpenChannel(HareRequest):
    """openChannelRequest."""


@final
class CloseChannel(HareRequest):
    """closeChannelRequest."""


@final
class Query(HareRequest):
    """basicQueryRequest."""


@final
class DeclareExchange(HareRequest):
    """declareExchangeRequest."""

    def __init__(
        self,
        rid: bytes,
        cid: bytes,
        exchange_name: str,
        exchange_type: int,
        durable: bool,
        auto_delete: bool,
        args: dict[str, str],
    ) -> None:
        super().__init__(rid, cid)
        self.exchange_name = exchange_name
        self.exchange_type = exchange_type
        self.durable = durable
        self.auto_delete = auto_delete
        self.args = args


@final
class DeleteExchange(HareRequest):
    """deleteExchangeRequest."""

    def __init__(self, rid: bytes, cid: bytes, exchange_name: str) -> None:
        super().__init__(rid, cid)
        self.exchange_name = exchange_name


@final
class DeclareQueue(HareRequest):
    """declareQueueRequest."""

    def __init__(
        self,
        rid: bytes,
        cid: bytes,
        queue_name: str,
        exclusive: bool,
        durable: bool,
        auto_delete: bool,
        args: dict[str, str],
    ) -> None:
        super().__init__(rid, cid)
        self.queue_name = queue_name
        self.exclusive = exclusive
        self.durable = durable
        self.auto_delete = auto_delete
        self.args = args


@final
class DeleteQueue(HareRequest):
    """deleteQueueRequest."""

    def __init__(self, rid: bytes, cid: bytes, queue_name: str) -> None:
        super().__init__(rid, cid)
        self.queue_name = queue_name


@final
class Bind(HareRequest):
    """bindRequest."""

    def __init__(
        self, rid: bytes, cid: bytes, exchange_name: str, queue_name: str, binding_key: str
    ) -> None:
        super().__init__(rid, cid)
        self.exchange_name = exchange_name
        self.queue_name = queue_name
        self.binding_key = binding_key


@final
class Unbind(HareRequest):
    """unbindRequest."""

    def __init__(self, rid: bytes, cid: bytes, exchange_name: str, queue_name: str) -> None:
        super().__init__(rid, cid)
        self.exchange_name = exchange_name
        self.queue_name = queue_name


@final
class Publish(HareRequest):
    """basicPublishRequest, with the fields of its properties."""

    def __init__(
        self,
        rid: bytes,
        cid: bytes,
        exchange_name: bytes,
        body: bytes,
        message_id: bytes,
        delivery_mode: i64,
        routing_key: bytes,
    ) -> None:
        super().__init__(rid, cid)
        self.exchange_name = exchange_name
        self.body = body
        self.message_id = message_id
        self.delivery_mode: i64 = delivery_mode
        self.routing_key = routing_key


@final
class Ack(HareRequest):
    """basicAckRequest."""

    def __init__(self, rid: bytes, cid: bytes, queue_name: bytes, message_id: bytes) -> None:
        super().__init__(rid, cid)
        self.queue_name = queue_name
        self.message_id = message_id


@final
class Consume(HareRequest):
    """basicConsumeRequest."""

    def __init__(
        self, rid: bytes, cid: bytes, consumer_tag: str, queue_name: str, auto_ack: bool
    ) -> None:
        super().__init__(rid, cid)
        self.consumer_tag = consumer_tag
        self.queue_name = queue_name
        self.auto_ack = auto_ack


@final
class Cancel(HareRequest):
    """basicCancelRequest."""

    def __init__(self, rid: bytes, cid: bytes, consumer_tag: str, queue_name: str) -> None:
        super().__init__(rid, cid)
        self.consumer_tag = consumer_tag
        self.queue_name = queue_name


@mypyc_attr(allow_interpreted_subclasses=True)
class HareCodec:
    """Decodes the messages of requests in every form that protobuf allows."""

    @abstractmethod
    def decode(self, kind: int, message: bytes) -> HareRequest:
        """Decode a request of `kind`, a key of `frames.REQUESTS`.

        Raises: FrameError (501) for an invalid message.
        """
