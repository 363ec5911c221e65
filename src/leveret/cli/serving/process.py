"""The process of a broker: its setup by `leveret serve`, and its end.

Only this module changes settings of the whole process: its umask, its limit on descriptors, signal
handlers, the allocator, the switch interval and the garbage collector.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

from leveret import __version__, machine
from leveret.app.first_records import BadDefinitions
from leveret.app.ground import INTERNAL_ERROR
from leveret.app.listeners import CannotListen
from leveret.app.node import FAILED_SECONDS, RunningBroker
from leveret.app.parts import Parts
from leveret.cli.exits import CONFIG
from leveret.cli.printing.output import announce
from leveret.cli.serving.heap import Heap, make_heap
from leveret.cli.serving.service_manager import ServiceManager
from leveret.cli.settings.rabbitmq_variables import without_effect
from leveret.config import Settings
from leveret.escaping import unquoted
from leveret.limits import MESSAGE_BYTES_MAX
from leveret.machine import TooFewThreads
from leveret.server import descriptors
from leveret.server.descriptors import TooFewDescriptors
from leveret.server.opening.certificates import BadCertificates
from leveret.store.disk import DiskLocked, StorageFailure
from leveret.wire.buffer import BUILD

#: Limits the time for which a busy thread delays the event loop; compiled code releases the GIL
#: only in calls.
SWITCH_INTERVAL_SECONDS: Final = 0.0001

#: The number of young objects that starts a garbage collection, and the numbers of collections of
#: one generation that start a collection of the next.  Messages are not tracked, so garbage is
#: rare, but deleted queues are cyclic garbage.  While 50,000 such objects were collected, no client
#: was served for 30 to 40 ms; 50,000 live objects, such as an exchange's bindings, took 15 ms.
GC_THRESHOLD: Final = 2_000
GC_YOUNG_COLLECTIONS: Final = 5
GC_MIDDLE_COLLECTIONS: Final = 5_000

#: The interval at which the end of the heap is trimmed, and the pause between two pieces.
HEAP_SECONDS: Final = 1.0
HEAP_PIECE_SECONDS: Final = 0.01

#: Creates a broker, such as `RunningBroker`, from settings, parts and a function to call on a
#: failure.
MakeNode = Callable[[Settings, Parts, Callable[[int], None]], RunningBroker]


def run(
    settings: Settings,
    make_node: MakeNode = RunningBroker,
    read: Callable[[], Settings] | None = None,
) -> int:
    """Run a broker until a stop request or a failure; return the process's exit code.

    0 means a graceful stop, 1 a failed or unusable storage or invalid definitions,
    `INTERNAL_ERROR` an unexpected exception.  `make_node` creates the broker.  `read` reads the
    settings again on SIGHUP, and raises ConfigError if they are invalid.
    """
    os.umask(0o077)
    descriptors.raise_limit()
    heap = make_heap()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    return _run(_serve(settings, make_node, read, heap), settings.uvloop)


async def _serve(
    settings: Settings,
    make_node: MakeNode,
    read: Callable[[], Settings] | None,
    heap: Heap | None,
) -> int:
    parts = Parts(settings)
    try:
        node = make_node(settings, parts, _end_soon)
    except StorageFailure as failure:
        log = parts.log()
        log.critical("the broker cannot start", reason=_of_data(settings, failure))
        return 1
    try:
        return await _serve_until_stopped(node, read, heap)
    except Exception as bug:
        if bug is not node.ending.bug:
            said = "internal error, the broker stops"
            node.log.critical(said, reason=unquoted(bug), exc_info=bug)
        # The first failure decides the exit code.
        return node.exit_code or INTERNAL_ERROR


def _of_data(settings: Settings, failure: StorageFailure) -> str:
    """Return the reason and the remedy for an unusable data directory."""
    if isinstance(failure, DiskLocked):
        return f"{failure}; stop that broker, or set data_dir to another directory for this one"
    where = settings.data_dir
    return f"the data directory {where} cannot be used: {failure}; set data_dir to another one"


async def _serve_until_stopped(
    node: RunningBroker, read: Callable[[], Settings] | None, heap: Heap | None
) -> int:
    """Run a broker until a stop request or a failure; return the process's exit code."""
    settings = node.settings
    manager = ServiceManager()
    directory = str(settings.data_dir.absolute())
    node.log.info(
        "starting", version=__version__, build=BUILD, data_dir=directory, process=os.getpid()
    )
    manager.notify("STATUS=recovering the data directory")
    for variable, remedy in without_effect(os.environ):
        text = f"{variable} has no effect on this broker: {remedy}"
        node.log.warning(text)
    try:
        _tell_limits(node)
        await _start(node)
    except StorageFailure as failure:
        node.log.critical("the broker cannot start", reason=_of_data(settings, failure))
        return 1
    except BadCertificates as error:
        node.log.critical("the broker cannot start", reason=str(error))
        return CONFIG
    except (BadDefinitions, CannotListen, TooFewDescriptors, TooFewThreads) as error:
        node.log.critical("the broker cannot start", reason=str(error))
        return 1
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.request_stop)
    loop.add_signal_handler(signal.SIGHUP, node.request_reload, read)
    listening = "listening with TLS only"
    if settings.amqp:
        listening = f"listening on amqp://{settings.host}:{node.port}"
        node.log.info(listening)
        announce(listening)
    announce("Server startup complete")
    manager.ready(listening)
    tasks = [loop.create_task(manager.ping())]
    if heap is not None:
        tasks.append(loop.create_task(_give_back(heap)))
    await node.wait()
    for task in tasks:
        task.cancel()
    manager.stopping()
    await node.stop()
    node.log.info("stopped", exit_code=node.exit_code)
    return node.exit_code


def _tell_limits(node: RunningBroker) -> None:
    """Log the limits of the process and their sources.  Raises: TooFewThreads."""
    settings = node.settings
    memory, threads = machine.memory(), machine.threads()
    node.log.info(
        "limits of the process",
        memory=str(memory),
        processors=str(machine.processors()),
        threads=str(threads),
        memory_bytes_max=settings.memory_bytes_max,
        message_bytes_max=settings.message_bytes_max,
    )
    if settings.memory_bytes_max > memory.amount:
        node.log.warning(
            "memory_bytes_max is more than the memory of the process, which would be killed before "
            "publishers are blocked: lower the setting, or give the process more memory",
            memory_bytes_max=settings.memory_bytes_max,
            memory=str(memory),
        )
    set_by_user = "message_bytes_max" in settings.model_fields_set
    if not set_by_user and settings.message_bytes_max < MESSAGE_BYTES_MAX:
        node.log.info(
            "message_bytes_max is lowered to an eighth of memory_bytes_max: larger messages are "
            "refused unless memory_bytes_max is raised",
            message_bytes_max=settings.message_bytes_max,
        )
    machine.check_threads(threads)


async def _start(node: RunningBroker) -> None:
    """Start a broker, and exclude its initial objects from later garbage collections."""
    # Recovery creates no garbage.
    gc.disable()
    try:
        await node.start()
    finally:
        gc.enable()
    gc.set_threshold(GC_THRESHOLD, GC_YOUNG_COLLECTIONS, GC_MIDDLE_COLLECTIONS)
    gc.collect()
    gc.freeze()


def _end_soon(code: int) -> None:
    """End the process with `code` after `FAILED_SECONDS`, even if the event loop hangs."""
    timer = threading.Timer(FAILED_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


async def _give_back(heap: Heap) -> None:
    """Return free memory to the system periodically."""
    while True:
        more = heap.give_back()
        await asyncio.sleep(HEAP_PIECE_SECONDS if more else HEAP_SECONDS)


def _run(main: Coroutine[Any, Any, int], wish_uvloop: bool) -> int:
    """Run `main` on uvloop if the settings select it and it is installed, otherwise on asyncio."""
    if wish_uvloop:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.run(main)
    return asyncio.run(main)
