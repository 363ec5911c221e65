"""The table of AMQP 0-9-1: classes, methods, fields, properties and constants.

`generate.py` generates `methods/` and `basic_properties.py` from it, and tests derive their cases
from it.  The table contains the specification, RabbitMQ's additions (exchange.bind, basic.nack,
confirm, connection.blocked, connection.update-secret) and the class access of 0-8, which old
clients use.  The module contains only data, and the broker does not import it, so it is not
compiled.

A field is written as `name:kind` or `name:kind=default`.  A reserved field is named `-`; it is
written as zero or empty, skipped on reading, and not an attribute of the method.  A name ends in
`_` if the plain word is already used by Python or by the class `Method`.  Kinds are AMQP's: bit,
octet, short, long, longlong, shortstr, longstr, table, timestamp.  Consecutive bits share octets,
lowest first.

Source: amqp0-9-1.extended.xml and https://www.rabbitmq.com/amqp-0-9-1-errata.html.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

#: The allowed senders of a method.
CLIENT: Final = "client"
SERVER: Final = "server"
BOTH: Final = "both"

KINDS: Final = (
    "bit",
    "octet",
    "short",
    "long",
    "longlong",
    "shortstr",
    "longstr",
    "table",
    "timestamp",
)


@dataclass(frozen=True)
class Field:
    """One argument of a method, or one property; `name` uses `_`, and is `-` if reserved."""

    name: str
    kind: str
    default: str | None = None

    @property
    def reserved(self) -> bool:
        """Whether the field is reserved."""
        return self.name == "-"


@dataclass(frozen=True)
class MethodSpec:
    """One method: its numbers, name with `-`, sender, fields and replies.

    `names` lists the fields that name an exchange or a queue, and `named_arguments` the entries of
    the table `arguments` that do.  These names are cleaned on reading (`leveret.names`).
    """

    class_name: str
    class_id: int
    method_id: int
    name: str
    sender: str
    doc: str
    fields: tuple[Field, ...]
    replies: tuple[str, ...] = ()
    has_content: bool = False
    secrets: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    named_arguments: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name in the specification, for example `queue.declare-ok`."""
        return f"{self.class_name}.{self.name}"

    @property
    def class_word(self) -> str:
        """The name of the Python class, for example `QueueDeclareOk`."""
        return "".join(word.capitalize() for word in f"{self.class_name}-{self.name}".split("-"))


def _fields(text: str) -> tuple[Field, ...]:
    """Parse the fields in `text`."""
    found = []
    for word in text.split():
        name, _, rest = word.partition(":")
        kind, has_default, default = rest.partition("=")
        found.append(Field(name, kind, default if has_default else None))
    return tuple(found)


@dataclass(frozen=True)
class ClassSpec:
    """One class of methods."""

    name: str
    class_id: int
    doc: str
    methods: tuple[MethodSpec, ...]


class _ClassBuilder:
    """Collects the methods of one class, so that the definitions below read like a table."""

    def __init__(self, name: str, class_id: int, doc: str) -> None:
        self._name = name
        self._class_id = class_id
        self._doc = doc
        self._methods: list[MethodSpec] = []

    def method(
        self,
        method_id: int,
        name: str,
        sender: str,
        doc: str,
        fields: str = "",
        *,
        replies: tuple[str, ...] = (),
        has_content: bool = False,
        secrets: tuple[str, ...] = (),
        names: tuple[str, ...] = (),
        named_arguments: tuple[str, ...] = (),
    ) -> None:
        """Add one method."""
        full = tuple(f"{self._name}.{reply}" for reply in replies)
        self._methods.append(
            MethodSpec(
                class_name=self._name,
                class_id=self._class_id,
                method_id=method_id,
                name=name,
                sender=sender,
                doc=doc,
                fields=_fields(fields),
                replies=full,
                has_content=has_content,
                secrets=secrets,
                names=names,
                named_arguments=named_arguments,
            )
        )

    def done(self) -> ClassSpec:
        """Return the class with the added methods."""
        return ClassSpec(self._name, self._class_id, self._doc, tuple(self._methods))


_CLOSE = "reply_code:short reply_text:shortstr class_id:short method_id:short"
_TUNE = "channel_max:short frame_max:long heartbeat:short"
_SERVED = "delivery_tag:longlong redelivered:bit exchange:shortstr routing_key:shortstr"


_connection = _ClassBuilder(
    "connection", 10, "opening, tuning, closing and the state of a connection"
)
_connection.method(
    10,
    "start",
    SERVER,
    "Offers the server's properties and login mechanisms.",
    "version_major:octet=0 version_minor:octet=9 server_properties:table"
    " mechanisms:longstr=PLAIN locales:longstr=en_US",
    replies=("start-ok",),
)
_connection.method(
    11,
    "start-ok",
    CLIENT,
    "Chooses a mechanism and logs in.",
    "client_properties:table mechanism:shortstr=PLAIN response:longstr locale:shortstr=en_US",
    secrets=("response",),
)
_connection.method(
    20,
    "secure",
    SERVER,
    "Sends a challenge for another login step.",
    "challenge:longstr",
    replies=("secure-ok",),
)
_connection.method(
    21,
    "secure-ok",
    CLIENT,
    "Answers the challenge.",
    "response:longstr",
    secrets=("response",),
)
_connection.method(30, "tune", SERVER, "Proposes limits.", _TUNE, replies=("tune-ok",))
_connection.method(31, "tune-ok", CLIENT, "Accepts the limits or lower ones.", _TUNE)
_connection.method(
    40,
    "open",
    CLIENT,
    "Opens a virtual host.",
    "virtual_host:shortstr=/ -:shortstr -:bit",
    replies=("open-ok",),
)
_connection.method(41, "open-ok", SERVER, "The virtual host is open.", "-:shortstr")
_connection.method(
    50, "close", BOTH, "Closes the connection with a reason.", _CLOSE, replies=("close-ok",)
)
_connection.method(51, "close-ok", BOTH, "Confirms the close.")
_connection.method(
    60, "blocked", SERVER, "The server blocks publishers for now.", "reason:shortstr"
)
_connection.method(61, "unblocked", SERVER, "The server accepts publishes again.")
_connection.method(
    70,
    "update-secret",
    CLIENT,
    "Sends a new token before the old one expires.",
    "new_secret:longstr reason:shortstr",
    replies=("update-secret-ok",),
    secrets=("new_secret",),
)
_connection.method(71, "update-secret-ok", SERVER, "The new token is in use.")

_channel = _ClassBuilder("channel", 20, "opening and closing channels")
# Both strings are reserved in AMQP 0-9-1, and empty if sent by other peers; see
# `content/publish_marks.py`.
_channel.method(10, "open", CLIENT, "Opens the channel.", "key:shortstr=", replies=("open-ok",))
_channel.method(11, "open-ok", SERVER, "The channel is open.", "marks:longstr=")
_channel.method(20, "flow", BOTH, "Starts or stops deliveries.", "active:bit", replies=("flow-ok",))
_channel.method(21, "flow-ok", BOTH, "Confirms a flow.", "active:bit")
_channel.method(
    40, "close", BOTH, "Closes the channel with a reason.", _CLOSE, replies=("close-ok",)
)
_channel.method(41, "close-ok", BOTH, "Confirms the close.")

_access = _ClassBuilder("access", 30, "obsolete access tickets of AMQP 0-8")
_access.method(
    10,
    "request",
    CLIENT,
    "Requests a ticket; any answer suffices.",
    "realm:shortstr=/data exclusive:bit passive:bit active:bit write_:bit read_:bit",
    replies=("request-ok",),
)
_access.method(11, "request-ok", SERVER, "Grants a ticket.", "ticket:short=1")

_EXCHANGE_BIND = (
    "-:short destination:shortstr source:shortstr routing_key:shortstr no_wait:bit arguments:table"
)
_exchange = _ClassBuilder("exchange", 40, "declaring, deleting and binding exchanges")
_exchange.method(
    10,
    "declare",
    CLIENT,
    "Creates an exchange, or checks that it exists.",
    "-:short exchange:shortstr type:shortstr=direct passive:bit durable:bit auto_delete:bit"
    " internal:bit no_wait:bit arguments:table",
    replies=("declare-ok",),
    names=("exchange",),
    named_arguments=("alternate-exchange",),
)
_exchange.method(11, "declare-ok", SERVER, "The exchange exists.")
_exchange.method(
    20,
    "delete",
    CLIENT,
    "Deletes an exchange.",
    "-:short exchange:shortstr if_unused:bit no_wait:bit",
    replies=("delete-ok",),
    names=("exchange",),
)
_exchange.method(21, "delete-ok", SERVER, "The exchange is deleted.")
_exchange.method(
    30,
    "bind",
    CLIENT,
    "Binds an exchange to another.",
    _EXCHANGE_BIND,
    replies=("bind-ok",),
    names=("destination", "source"),
)
_exchange.method(31, "bind-ok", SERVER, "The binding exists.")
_exchange.method(
    40,
    "unbind",
    CLIENT,
    "Removes a binding between exchanges.",
    _EXCHANGE_BIND,
    replies=("unbind-ok",),
    names=("destination", "source"),
)
_exchange.method(51, "unbind-ok", SERVER, "The binding is deleted (51, not 41, as in RabbitMQ).")

_QUEUE_BIND = "-:short queue:shortstr exchange:shortstr routing_key:shortstr"
_queue = _ClassBuilder("queue", 50, "declaring, binding, purging and deleting queues")
_queue.method(
    10,
    "declare",
    CLIENT,
    "Creates a queue, or checks that it exists.",
    "-:short queue:shortstr passive:bit durable:bit exclusive:bit auto_delete:bit no_wait:bit"
    " arguments:table",
    replies=("declare-ok",),
    names=("queue",),
    named_arguments=("x-dead-letter-exchange",),
)
_queue.method(
    11,
    "declare-ok",
    SERVER,
    "The queue exists.",
    "queue:shortstr message_count:long consumer_count:long",
)
_queue.method(
    20,
    "bind",
    CLIENT,
    "Binds a queue to an exchange.",
    f"{_QUEUE_BIND} no_wait:bit arguments:table",
    replies=("bind-ok",),
    names=("queue", "exchange"),
)
_queue.method(21, "bind-ok", SERVER, "The binding exists.")
_queue.method(
    30,
    "purge",
    CLIENT,
    "Drops the ready messages of a queue.",
    "-:short queue:shortstr no_wait:bit",
    replies=("purge-ok",),
    names=("queue",),
)
_queue.method(31, "purge-ok", SERVER, "The messages are dropped.", "message_count:long")
_queue.method(
    40,
    "delete",
    CLIENT,
    "Deletes a queue.",
    "-:short queue:shortstr if_unused:bit if_empty:bit no_wait:bit",
    replies=("delete-ok",),
    names=("queue",),
)
_queue.method(
    41, "delete-ok", SERVER, "The queue and its messages are deleted.", "message_count:long"
)
_queue.method(
    50,
    "unbind",
    CLIENT,
    "Removes a binding.",
    f"{_QUEUE_BIND} arguments:table",
    replies=("unbind-ok",),
    names=("queue", "exchange"),
)
_queue.method(51, "unbind-ok", SERVER, "The binding is deleted.")

_basic = _ClassBuilder("basic", 60, "publishing, consuming and settling messages")
_basic.method(
    10,
    "qos",
    CLIENT,
    "Limits the number of unacked deliveries.",
    "prefetch_size:long prefetch_count:short global_:bit",
    replies=("qos-ok",),
)
_basic.method(11, "qos-ok", SERVER, "The limit is in force.")
_basic.method(
    20,
    "consume",
    CLIENT,
    "Starts a consumer.",
    "-:short queue:shortstr consumer_tag:shortstr no_local:bit no_ack:bit exclusive:bit"
    " no_wait:bit arguments:table",
    replies=("consume-ok",),
    names=("queue",),
)
_basic.method(21, "consume-ok", SERVER, "The consumer is started.", "consumer_tag:shortstr")
_basic.method(
    30,
    "cancel",
    BOTH,
    "Cancels a consumer; from the server: reports a cancelled consumer.",
    "consumer_tag:shortstr no_wait:bit",
    replies=("cancel-ok",),
)
_basic.method(31, "cancel-ok", BOTH, "The consumer is cancelled.", "consumer_tag:shortstr")
_basic.method(
    40,
    "publish",
    CLIENT,
    "Publishes a message.",
    "-:short exchange:shortstr routing_key:shortstr mandatory:bit immediate:bit",
    has_content=True,
    names=("exchange",),
)
_basic.method(
    50,
    "return",
    SERVER,
    "Returns an unroutable mandatory message.",
    "reply_code:short reply_text:shortstr exchange:shortstr routing_key:shortstr",
    has_content=True,
)
_basic.method(
    60,
    "deliver",
    SERVER,
    "Delivers a message to a consumer.",
    f"consumer_tag:shortstr {_SERVED}",
    has_content=True,
)
_basic.method(
    70,
    "get",
    CLIENT,
    "Requests one message.",
    "-:short queue:shortstr no_ack:bit",
    replies=("get-ok", "get-empty"),
    names=("queue",),
)
_basic.method(
    71,
    "get-ok",
    SERVER,
    "Returns one message, and the number of messages left.",
    f"{_SERVED} message_count:long",
    has_content=True,
)
_basic.method(72, "get-empty", SERVER, "The queue is empty.", "-:shortstr")

_basic.method(
    80,
    "ack",
    BOTH,
    "Acks deliveries; from the server: confirms publishes.",
    "delivery_tag:longlong multiple:bit",
)
_basic.method(
    90,
    "reject",
    CLIENT,
    "Rejects one delivery.",
    "delivery_tag:longlong requeue:bit",
)
_basic.method(100, "recover-async", CLIENT, "Redelivers unacked messages; no reply.", "requeue:bit")
_basic.method(
    110,
    "recover",
    CLIENT,
    "Redelivers unacked messages.",
    "requeue:bit",
    replies=("recover-ok",),
)
_basic.method(111, "recover-ok", SERVER, "The messages are being redelivered.")
_basic.method(
    120,
    "nack",
    BOTH,
    "Nacks deliveries; from the server: nacks publishes.",
    "delivery_tag:longlong multiple:bit requeue:bit",
)

_confirm = _ClassBuilder("confirm", 85, "publisher confirms")
_confirm.method(
    10,
    "select",
    CLIENT,
    "Enables publisher confirms.",
    "no_wait:bit",
    replies=("select-ok",),
)
_confirm.method(11, "select-ok", SERVER, "Publisher confirms are enabled.")

_tx = _ClassBuilder("tx", 90, "transactions of a channel")
_tx.method(10, "select", CLIENT, "Makes the channel transactional.", replies=("select-ok",))
_tx.method(11, "select-ok", SERVER, "The channel is transactional.")
_tx.method(20, "commit", CLIENT, "Commits the transaction.", replies=("commit-ok",))
_tx.method(21, "commit-ok", SERVER, "The transaction is committed.")
_tx.method(30, "rollback", CLIENT, "Rolls back the transaction.", replies=("rollback-ok",))
_tx.method(31, "rollback-ok", SERVER, "The transaction is rolled back.")

CLASSES: Final[tuple[ClassSpec, ...]] = (
    _connection.done(),
    _channel.done(),
    _access.done(),
    _exchange.done(),
    _queue.done(),
    _basic.done(),
    _confirm.done(),
    _tx.done(),
)

#: Every method by its name.
METHODS: Final[dict[str, MethodSpec]] = {
    method.full_name: method for each in CLASSES for method in each.methods
}

#: A synchronous method's name → the names of the methods that may answer it.
REPLIES: Final[dict[str, tuple[str, ...]]] = {
    name: method.replies for name, method in METHODS.items() if method.replies
}

#: The properties of class basic in the order of their flags, from bit 15 down; bit 1 is unused and
#: bit 0 would announce more flags, which no class has.
PROPERTIES: Final[tuple[Field, ...]] = _fields(
    "content_type:shortstr content_encoding:shortstr headers:table delivery_mode:octet"
    " priority:octet correlation_id:shortstr reply_to:shortstr expiration:shortstr"
    " message_id:shortstr timestamp:timestamp type:shortstr user_id:shortstr app_id:shortstr"
    " cluster_id:shortstr"
)
