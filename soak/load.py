"""A publisher that goes on through every crash of the broker and publishes each number once.

Each message has its number as publishing id, so that what was not confirmed is published again
without being there twice.
"""

from __future__ import annotations

import threading
from typing import Final

from leveret.client import BasicProperties, PublishFailed
from leveret.client.blocking import Channel, connect
from leveret.spark.connection.connecting import INTERRUPTIONS

#: Messages between two waits for confirms, and what they carry beside their number.
WINDOW: Final = 100
PADDING: Final = b" " * 60

#: How long it waits after each window, and before it connects again.
PAUSE_SECONDS: Final = 0.1
AGAIN_SECONDS: Final = 0.2

PUBLISHER: Final = "soak"


class Load:
    """Publishes 0, 1, 2 … to a queue or stream until it is told to end."""

    def __init__(self, uri: str, queue: str, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._uri = uri
        self._queue = queue
        self._pause_seconds = pause_seconds
        self._over = threading.Event()
        self._failure: BaseException | None = None
        #: How many are confirmed.
        self.count = 0
        self._is_whole = True
        self._thread = threading.Thread(target=self._run, name=f"load of {queue}", daemon=True)

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def end(self) -> int:
        """Stop; return how many were published.  Raises: what ended it before."""
        self._over.set()
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.count

    def _run(self) -> None:
        try:
            while not self._is_done:
                try:
                    with connect(self._uri, recover=False) as connection:
                        channel = connection.channel()
                        channel.confirm_select()
                        self._publish(channel)
                except (*INTERRUPTIONS, PublishFailed):
                    self._over.wait(AGAIN_SECONDS)
        except BaseException as error:  # noqa: BLE001  told by `end`
            self._failure = error

    @property
    def _is_done(self) -> bool:
        """Whether it was told to end, and nothing waits for a confirm that a crash took away."""
        return self._over.is_set() and self._is_whole

    def _publish(self, channel: Channel) -> None:
        """Publish windows until the end or a failure."""
        while not self._is_done:
            self._is_whole = False
            for number in range(self.count, self.count + WINDOW):
                headers = {"x-publisher": PUBLISHER, "x-publishing-id": number}
                properties = BasicProperties(headers=headers, delivery_mode=2)
                channel.publish_nowait(b"%d" % number + PADDING, "", self._queue, properties)
            channel.wait_for_confirms()
            self.count += WINDOW
            self._is_whole = True
            self._over.wait(self._pause_seconds)
