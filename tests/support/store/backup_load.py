"""Publishers that run during a backup, and know which messages were confirmed at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from leveret.client.blocking import connect
from support.store.data_dirs import PERSISTENT, body


class Load:
    """Publishes in a thread; `confirmed` holds the confirmed messages so far, in order."""

    def __init__(self, uri: str, queue: str) -> None:
        self.confirmed: list[bytes] = []
        self.warm = threading.Event()
        self._uri = uri
        self.queue = queue
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with connect(self._uri) as connection:
            channel = connection.channel()
            channel.confirm_select()
            channel.queue_declare(self.queue, durable=True)
            number = 0
            while not self._stop.is_set():
                sent = [body(self.queue, number + more) for more in range(5)]
                for each in sent:
                    channel.publish_nowait(each, "", self.queue, PERSISTENT)
                channel.wait_for_confirms()
                self.confirmed += sent
                number += len(sent)
                if number >= 300:
                    self.warm.set()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Publish until the end of the context."""
        self._thread.start()
        assert self.warm.wait(300)
        yield
        self._stop.set()
        self._thread.join(300)
