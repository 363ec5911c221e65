"""Booting the core on a harmed directory in memory: some milliseconds for each.

It is the broker without its shell: recovery, core, journal and sessions, on a disk in memory (the
recording one of the tests), read by a client that speaks AMQP to a session.  What it leaves out
(sockets, threads, files, the log) is in the boots of `forks.py`.
"""

from __future__ import annotations

from typing import Any, Final

from chaos.forks import READER, Boot, let_in
from chaos.reading import MARKER, Reading, requests, up_to_marker
from chaos.specimen import STREAM, Specimen, channels_of
from leveret.management.fields import plain
from leveret.store.disk import StorageFailure
from leveret.store.disks.recording import Image, RecordingDisk
from support.node.core import Node
from support.node.exporting import export_definitions

#: Rounds of effects after which a queue that did not come to its end will not.
ROUNDS_MAX: Final = 100


def image_of(specimen: Specimen) -> Image:
    """Return what lies in a specimen's directory."""
    root = specimen.directory
    paths = sorted(root.rglob("*"))
    return Image(
        {path.relative_to(root).as_posix(): path.read_bytes() for path in paths if path.is_file()},
        {path.relative_to(root).as_posix() for path in paths if path.is_dir()},
    )


def boot(image: Image, window_bytes: int) -> tuple[Boot, Reading, bool]:
    """Boot on an image and read all of it; tell too whether something is in quarantine.

    `window_bytes` of each queue are held in memory, as far as the core sees.
    """
    disk = RecordingDisk(image)
    try:
        node = Node(disk, window_bytes=window_bytes)
    except StorageFailure as failure:
        refused = str(failure)
        return Boot(0, {}, lambda: refused), Reading(problems=[refused]), False
    definitions: dict[str, Any] = plain(export_definitions(node.broker))  # type: ignore[assignment]
    let_in(node.broker)
    reading = _read(node, definitions)
    report = node.report
    said = [f"damage found: {damage}" for damage in report.damages + report.known]
    said += [f"torn end of the journal: {damage}" for damage in report.torn]
    kept = bool(disk.list("quarantine")) if said else True
    # A chunk that is damaged when it is read is kept and named by the shell.
    said += [f"damage found: {damaged.what}" for damaged in node.core.damaged]
    return Boot(1, definitions, lambda: "\n".join(said)), reading, kept


def _read(node: Node, definitions: dict[str, Any]) -> Reading:
    """Read every queue to its end."""
    peer = node.dial()
    peer.login(user=READER)
    peer.reads = False
    reading = Reading()
    names = {str(queue["name"]) for queue in definitions.get("queues", [])}
    for queue, channel in channels_of(names).items():
        peer.send(*requests(channel, queue, is_stream=queue == STREAM))
        for _ in range(ROUNDS_MAX):
            node.sync()
            if peer.waiting.endswith(MARKER + b"\xce"):
                break
        else:
            reading.problems.append(f"{queue}: no end")
            break
        reading.queues[queue] = up_to_marker(peer.waiting)
        peer.waiting = b""
    return reading
