"""Kafka's topics as destinations: which of them have an exchange that keeps the rows' keys."""

from __future__ import annotations

from leveret.client.blocking import Connection
from leveret.errors import AccessRefused, NotFound
from leveret.spark.connection.connecting import INTERRUPTIONS, interrupted
from leveret.spark.connection.retries import ask
from leveret.spark.write.link import close_link, open_link
from leveret.spark.write.options import WriteOptions


class Topics:
    """The topics of one task; the broker is asked once for each."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._known: dict[str, bool] = {}

    def is_exchange(self, topic: str) -> bool:
        """Return whether an exchange has a topic's name, as that of a super stream does.

        Raises: Interrupted; the exceptions of a refused login.
        """
        if topic not in self._known:
            what = f"the topic {topic!r}"
            self._known[topic] = ask(self._options, what, lambda: self._asked(topic))
        return self._known[topic]

    def _asked(self, topic: str) -> bool:
        connection = open_link(self._options)
        try:
            return has_exchange(connection, topic)
        except INTERRUPTIONS as error:
            raise interrupted(error) from error
        finally:
            close_link(connection)


def has_exchange(connection: Connection, name: str) -> bool:
    """Return whether there is an exchange of a name that the user has a permission for.

    Raises: the errors of a lost connection.
    """
    channel = connection.channel()
    try:
        channel.exchange_declare(name, passive=True)
    except (NotFound, AccessRefused):
        return False
    channel.close()
    return True
