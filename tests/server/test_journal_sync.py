"""The thread in which a group is synced, and when."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine

import pytest

from leveret.server.journal_sync import JournalSync
from leveret.server.runner import DiskThread
from leveret.store.disk import DiskFull, StorageFailure
from leveret.store.journal.journal import JournalGroup
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

QUICK_NS, SLOW_NS = 100_000, 5_000_000


class Syncing:
    """A broker whose groups a `JournalSync` has written; the test says how long each takes."""

    def __init__(self) -> None:
        self.node = Node()
        self.took_ns = QUICK_NS
        self.now_ns = 0
        #: Raised by the next write.
        self.failure: StorageFailure | None = None
        self.failures: list[StorageFailure] = []
        #: For each group, whether the event loop wrote it.
        self.in_loop: list[bool] = []
        self._loop_thread = threading.current_thread()
        self._synced = asyncio.Event()
        loop = asyncio.get_running_loop()
        self.thread = DiskThread(loop, self.failures.append, self._broken)
        self.thread.start()
        self.sync = JournalSync(
            loop,
            self.node.core,
            self.thread,
            self._write,
            self._submit,
            self._ended,
            lambda: self.now_ns,
        )

    def _broken(self, error: BaseException) -> None:
        raise error

    def _write(self, group: JournalGroup) -> None:
        self.in_loop.append(threading.current_thread() is self._loop_thread)
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        self.now_ns += self.took_ns
        self.node.files.write(group)

    def _submit(self, work: Callable[[], None], done: Callable[[], None]) -> None:
        def task() -> Callable[[], None]:
            work()
            return done

        self.thread.submit(task)

    def _ended(self, number: int) -> None:
        self.node.core.syncs.synced(number)
        self.node.run()
        self._synced.set()

    async def synced(self) -> None:
        """Begin a sync, and wait for its end."""
        self._synced.clear()
        self.sync.begin()
        await self._synced.wait()

    async def confirmed(self, *peers: Peer, times: int = 1) -> list[bool]:
        """Publish from each of the connections; return which groups the event loop wrote."""
        self.in_loop.clear()
        for _ in range(times):
            for peer in peers:
                peer.send(publish(1, "", "q", b"x", delivery_mode=2))
                await self.synced()
                assert peer.names() == ["basic.ack"]
        return self.in_loop


def run(scenario: Callable[[Syncing, list[Peer]], Coroutine[None, None, None]]) -> None:
    """Run a scenario with two publishers to the queue `q`."""

    async def main() -> None:
        syncing = Syncing()
        node = syncing.node
        peers = [node.connect(), node.connect()]
        peers[0].declare("q")
        for peer in peers:
            peer.call(1, "confirm.select")
        node.sync()
        try:
            await scenario(syncing, peers)
        finally:
            syncing.thread.stop()

    asyncio.run(main())


def test_the_loop_syncs_for_a_client_that_is_alone() -> None:
    async def scenario(syncing: Syncing, peers: list[Peer]) -> None:
        assert await syncing.confirmed(peers[0], times=20) == [False] * 16 + [True] * 4
        # Another one: the records of both can be synced together.
        assert await syncing.confirmed(peers[1]) == [False]
        assert not any(await syncing.confirmed(*peers, times=30))

    run(scenario)


def test_a_slow_disk_is_left_to_the_thread() -> None:
    async def scenario(syncing: Syncing, peers: list[Peer]) -> None:
        peer = peers[0]
        syncing.took_ns = SLOW_NS
        assert not any(await syncing.confirmed(peer, times=40))
        syncing.took_ns = QUICK_NS
        assert sum(await syncing.confirmed(peer, times=20)) > 0
        syncing.took_ns = SLOW_NS
        assert await syncing.confirmed(peer, times=2) == [True, False]
        # After each such sync, twice as many have to be quick.
        syncing.took_ns = QUICK_NS
        assert sum(await syncing.confirmed(peer, times=32)) == 0
        assert sum(await syncing.confirmed(peer, times=2)) > 0

    run(scenario)


def test_the_loop_waits_for_other_work_of_the_thread() -> None:
    async def scenario(syncing: Syncing, peers: list[Peer]) -> None:
        await syncing.confirmed(peers[0], times=20)
        assert syncing.in_loop[-1]
        # Such as a part of a checkpoint, which writes files as well.
        release = threading.Event()

        def task() -> Callable[[], None]:
            release.wait()
            return lambda: None

        syncing.thread.submit(task)
        asyncio.get_running_loop().call_soon(release.set)
        assert await syncing.confirmed(peers[0]) == [False]

    run(scenario)


def test_a_full_disk_is_tried_again_by_the_thread() -> None:
    async def scenario(syncing: Syncing, peers: list[Peer]) -> None:
        await syncing.confirmed(peers[0], times=20)
        syncing.failure = DiskFull("append", "journal", "no space", 28)
        assert await syncing.confirmed(peers[0]) == [True, False]

    run(scenario)


def test_a_failed_sync_in_the_loop_confirms_nothing() -> None:
    async def scenario(syncing: Syncing, peers: list[Peer]) -> None:
        await syncing.confirmed(peers[0], times=20)
        failure = syncing.failure = StorageFailure("sync", "journal", "broken", 5)
        peers[0].send(publish(1, "", "q", b"x", delivery_mode=2))
        syncing.sync.begin()
        assert syncing.failures == [failure]
        assert syncing.sync.in_progress
        assert peers[0].names() == []

    run(scenario)


@pytest.mark.parametrize("follows", [True, False])
def test_acks_are_synced_with_the_next_publish_or_alone(follows: bool) -> None:
    async def scenario(syncing: Syncing, peers: list[Peer]) -> None:
        await syncing.confirmed(peers[0], times=3)
        got = peers[1].call_get("q")
        peers[1].send(method(1, "basic.ack", delivery_tag=got.delivery_tag))
        syncing.in_loop.clear()
        syncing.sync.begin()
        assert (syncing.sync.in_progress, syncing.sync.is_busy) == (False, True)
        if follows:
            await syncing.confirmed(peers[0])
        else:
            await syncing.synced()
        assert len(syncing.in_loop) == 1
        assert (syncing.sync.is_busy, syncing.node.journal.has_records()) == (False, False)

    run(scenario)
