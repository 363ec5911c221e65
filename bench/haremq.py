"""Messages per second over HareMQ's protocol, beside what HareMQ itself was measured to do.

    python bench/haremq.py [--seconds N] [--rounds N] [--size N]

It starts a broker of its own and drives it by pipelined requests, which are made before the clock
starts; ids have 155 characters, as HareMQ's client makes them.  A figure is the median of the
rounds.  `us of the broker` is its processor time for each message, which the load of the machine
hardly changes.  Ratios are to HareMQ's own figures (two cores, -O2, nothing synced): the lower and
the upper end of what its client, or its server fed by pipelined requests, did.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import IO, Final

import psutil

from leveret.haremq.frames import HareFrameWriter
from leveret.haremq.protobuf_codec import message_classes
from leveret.wire.buffer import COMPILED, BytesWriter

#: Different messages; they are sent again and again.
MESSAGES: Final = 12_000
#: Frames of one write, and requests without an answer at most.
BATCH: Final = 500
WINDOW: Final = 10_000

LISTENING: Final = re.compile(r"listening for HareMQ on [\d.]+:(\d+)")
READY: Final = "Server startup complete"

#: What HareMQ did per second: its client with one request at a time, end to end, and its server.
CLIENT: Final = (3_400, 4_100)
END_TO_END: Final = (4_100, 5_300)
TRANSIENT: Final = (37_000, 74_000)
DURABLE: Final = (13_000, 26_000)


def request(name: str, **fields: object) -> bytes:
    """Return a request's frame."""
    writer = BytesWriter()
    message = message_classes_cached()[name](**fields).SerializeToString()
    HareFrameWriter(name).write(writer, message)
    return bytes(writer.getvalue())


_CLASSES: dict[str, object] = {}


def message_classes_cached() -> dict[str, type]:
    """Return protobuf's classes, made once."""
    if not _CLASSES:
        _CLASSES.update(message_classes())
    return _CLASSES  # type: ignore[return-value]


def id_of(number: int) -> str:
    """Return an id of 155 characters."""
    return f"{number:010d}-" + "0000-" * 28 + "0000"


class Counter:
    """Counts what came, in bytes, and lets others wait for it."""

    def __init__(self) -> None:
        self.came = 0
        self._grown = threading.Condition()

    def add(self, size: int) -> None:
        """Count more bytes."""
        with self._grown:
            self.came += size
            self._grown.notify_all()

    def wait(self, size: int, ended: threading.Event | None = None) -> None:
        """Wait until so many bytes came, or there will be no more.  Raises: TimeoutError."""

        def enough() -> bool:
            return self.came >= size or (ended is not None and ended.is_set())

        with self._grown:
            if not self._grown.wait_for(enough, 60):
                raise TimeoutError(f"{size} bytes did not come, {self.came} did")


class Link:
    """One connection with a channel, whose input a thread counts."""

    def __init__(self, port: int, number: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cid = id_of(number)
        self.counter = Counter()
        threading.Thread(target=self._read, daemon=True).start()
        self.answer_size = len(request("basicCommonResponse", rid=id_of(0), cid=self.cid, ok=True))
        self.ask("openChannelRequest")

    def _read(self) -> None:
        buffer = bytearray(1 << 20)
        with contextlib.suppress(OSError):
            while size := self.socket.recv_into(buffer):
                self.counter.add(size)

    def frame(self, name: str, **fields: object) -> bytes:
        """Return the frame of a request on the channel."""
        return request(name, rid=id_of(0), cid=self.cid, **fields)

    def ask(self, name: str, **fields: object) -> None:
        """Do a request and wait for its answer, which has the size of one with `ok`."""
        before = self.counter.came
        self.socket.sendall(self.frame(name, **fields))
        self.counter.wait(before + self.answer_size)

    def close(self) -> None:
        """Close the socket."""
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


@dataclass
class Rate:
    """Messages of one round, its seconds and the broker's processor seconds."""

    messages: int
    seconds: float
    processor: float


class Broker:
    """The broker under measure."""

    def __init__(self, data_dir: str) -> None:
        command = [sys.executable, "-m", "leveret", "serve", "--data-dir", data_dir, "--port", "0"]
        command += ["--http-port", "0", "--haremq-port", "0"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        self.port = self._wait(self._process.stdout)
        self._usage = psutil.Process(self._process.pid)
        threading.Thread(target=self._process.stdout.read, daemon=True).start()

    def _wait(self, output: IO[str]) -> int:
        port = 0
        for line in output:
            if found := LISTENING.search(line):
                port = int(found[1])
            if READY in line:
                return port
        raise RuntimeError("the broker did not start")

    def processor(self) -> float:
        """Return its processor seconds so far."""
        times = self._usage.cpu_times()
        return float(times.user + times.system)

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait()


class Load:
    """Publishes to one queue by one connection, and consumes it by another."""

    def __init__(self, broker: Broker, name: str, size: int, durable: bool) -> None:
        self.broker = broker
        self.name = name
        self.publisher = Link(broker.port, 1)
        self.publisher.ask("declareExchangeRequest", exchange_name=name, exchange_type=2)
        queue = {"queue_name": name, "durable": durable}
        # What is only published must not fill the memory; it drops the oldest.
        if durable:
            queue["args"] = {"x-max-length": "10000"}
        self.publisher.ask("declareQueueRequest", **queue)
        self.publisher.ask("bindRequest", exchange_name=name, queue_name=name)
        frames = [
            self.publisher.frame(
                "basicPublishRequest",
                exchange_name=name,
                body="x" * size,
                properties={"id": id_of(number), "delivery_mode": 2 if durable else 1},
            )
            for number in range(MESSAGES)
        ]
        self.batches = [
            b"".join(frames[start : start + BATCH]) for start in range(0, MESSAGES, BATCH)
        ]
        self.frames = frames

    def publish(self, seconds: float, window: int = WINDOW) -> Rate:
        """Publish for a time, with so many requests unanswered at most."""
        link = self.publisher
        size = link.answer_size
        begun = link.counter.came
        sent = 0
        processor = self.broker.processor()
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            if window == 1:
                link.socket.sendall(self.frames[sent % MESSAGES])
                sent += 1
                link.counter.wait(begun + sent * size)
                continue
            link.counter.wait(begun + max(0, sent - window) * size)
            link.socket.sendall(self.batches[sent // BATCH % len(self.batches)])
            sent += BATCH
        link.counter.wait(begun + sent * size)
        took = time.perf_counter() - start
        return Rate(sent, took, self.broker.processor() - processor)

    def end_to_end(self, seconds: float, acks: bool) -> Rate:
        """Publish and consume for a time; what counts is what the consumer got."""
        consumer = Link(self.broker.port, 2)
        fields = {"consumer_tag": "t", "queue_name": self.name, "auto_ack": not acks}
        consumer.ask("basicConsumeRequest", **fields)
        one = self.push_size(consumer)
        acker = Link(self.broker.port, 3)
        ack_frames = [
            acker.frame("basicAckRequest", queue_name=self.name, message_id=id_of(number))
            for number in range(MESSAGES)
        ]
        begun = consumer.counter.came
        acks_begun = acker.counter.came
        done = threading.Event()
        total = [0]

        def ack() -> None:
            acked = 0
            while not done.is_set() or acked < total[0]:
                got = (consumer.counter.came - begun) // one
                if got - acked < BATCH and not done.is_set():
                    consumer.counter.wait(begun + (acked + 1) * one, done)
                    got = (consumer.counter.came - begun) // one
                picked = [ack_frames[number % MESSAGES] for number in range(acked, got)]
                acker.socket.sendall(b"".join(picked))
                acked = got

        thread = threading.Thread(target=ack)
        processor = self.broker.processor()
        start = time.perf_counter()
        if acks:
            thread.start()
        link = self.publisher
        answered = link.counter.came
        sent = 0
        while time.perf_counter() - start < seconds:
            if acks:
                # An id is used again only when its message is gone.
                least = max(0, sent - MESSAGES + BATCH)
                acker.counter.wait(acks_begun + least * acker.answer_size)
            else:
                consumer.counter.wait(begun + max(0, sent - WINDOW) * one)
            link.counter.wait(answered + max(0, sent - WINDOW) * link.answer_size)
            link.socket.sendall(self.batches[sent // BATCH % len(self.batches)])
            sent += BATCH
        consumer.counter.wait(begun + sent * one)
        took = time.perf_counter() - start
        total[0] = sent
        done.set()
        consumer.counter.add(0)
        if acks:
            thread.join()
            # What the broker has not read when the socket closes would come back in the next round.
            acker.counter.wait(acks_begun + sent * acker.answer_size)
        rate = Rate(sent, took, self.broker.processor() - processor)
        link.counter.wait(answered + sent * link.answer_size)
        consumer.close()
        acker.close()
        return rate

    def push_size(self, consumer: Link) -> int:
        """Return the size of a push to the consumer."""
        sample = message_classes_cached()[
            "basicPublishRequest"
        ].FromString(  # type: ignore[attr-defined]
            self.frames[0][8 + len("hare_mq.basicPublishRequest") + 1 : -4]
        )
        fields = {"consumer_tag": "t", "body": sample.body, "properties": sample.properties}
        return len(request("basicConsumeResponse", cid=consumer.cid, **fields))

    def close(self) -> None:
        """Delete what was made."""
        self.publisher.ask("deleteQueueRequest", queue_name=self.name)
        self.publisher.ask("deleteExchangeRequest", exchange_name=self.name)
        self.publisher.close()


def show(title: str, rates: list[Rate], theirs: tuple[int, int]) -> None:
    """Print the median of some rounds."""
    rate = statistics.median(one.messages / one.seconds for one in rates)
    micros = statistics.median(one.processor / one.messages * 1e6 for one in rates)
    low, high = theirs
    print(
        f"{title:40} {rate:8,.0f} /s, {rate / high:.1f} to {rate / low:.1f} times HareMQ's "
        f"{low:,} to {high:,}; {micros:.2f} us of the broker: {1e6 / micros:,.0f} /s of a core"
    )


def main() -> None:
    """Run the rounds and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--size", type=int, default=13)
    options = parser.parse_args()
    print(f"{'compiled' if COMPILED else 'plain Python'}, bodies of {options.size} bytes")
    rounds = range(options.rounds)
    seconds = options.seconds
    with tempfile.TemporaryDirectory() as folder:
        broker = Broker(folder)
        try:
            load = Load(broker, "transient", options.size, False)
            auto = [load.end_to_end(seconds, False) for _ in rounds]
            acked = [load.end_to_end(seconds, True) for _ in rounds]
            load.close()
            load = Load(broker, "single", options.size, False)
            load.publisher.ask("unbindRequest", exchange_name="single", queue_name="single")
            single = [load.publish(seconds, 1) for _ in rounds]
            load.close()
            load = Load(broker, "limited", options.size, False)
            load.publisher.ask("deleteQueueRequest", queue_name="limited")
            limit = {"x-max-length": "10000"}
            load.publisher.ask("declareQueueRequest", queue_name="limited", args=limit)
            load.publisher.ask("bindRequest", exchange_name="limited", queue_name="limited")
            transient = [load.publish(seconds) for _ in rounds]
            load.close()
            load = Load(broker, "durable", options.size, True)
            durable = [load.publish(seconds) for _ in rounds]
            load.close()
        finally:
            broker.stop()
    show("publishes one at a time, as its client", single, CLIENT)
    show("end to end, automatic acks", auto, END_TO_END)
    show("end to end, each message acked", acked, END_TO_END)
    show("publishes, pipelined, transient", transient, TRANSIENT)
    show("publishes, pipelined, durable and synced", durable, DURABLE)


if __name__ == "__main__":
    main()
