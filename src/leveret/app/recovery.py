"""Restores the state of a broker from its data directory before it listens."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from leveret.app.ground import Ground
from leveret.broker.events import Events
from leveret.broker.recovery.restore import Restore
from leveret.server.start_progress import StartProgress
from leveret.store.checkpoint.checkpoint import CheckpointStore
from leveret.store.recovery.recovery import RecoveryReport, StoreRecovery


@dataclass(frozen=True)
class RecoveryResult:
    """The report of recovery, and the checkpoints that continue from its state."""

    report: RecoveryReport
    checkpoints: CheckpointStore


def recover(ground: Ground) -> RecoveryResult:
    """Lock the data directory and restore the broker's state.

    Raises: StorageFailure if the data directory cannot be used.
    """
    restore = Restore(ground.broker)
    disk = ground.disk
    recovery = StoreRecovery(disk, restore, secrets.token_bytes(16), ground.clock.wall_ms())
    began_ms = ground.clock.monotonic_ms()
    progress = StartProgress(recovery, disk, ground.clock.monotonic_ms, ground.log.info)
    for _ in recovery.run():
        progress.look()
    progress.end()
    report = recovery.report
    checkpoints = CheckpointStore(report)
    _equip(ground, report, checkpoints)
    restore.finish(not report.clean_stop)
    _tell(ground, report, restore)
    _count(ground, report, restore, began_ms)
    return RecoveryResult(report, checkpoints)


def _equip(ground: Ground, report: RecoveryReport, checkpoints: CheckpointStore) -> None:
    """Attach the journal, files and clock to the broker."""
    settings = ground.settings
    broker = ground.broker
    core = broker.core
    journal = report.journal()
    journal.file_bytes_max = settings.journal_file_bytes
    ground.chunks.seed = report.seed
    core.attach(journal, checkpoints.spill, ground.chunks)
    core.now_ms = ground.clock.wall_ms()
    core.publisher_expiry_ms = settings.publisher_expiry_ms
    if settings.event_sample_every:
        core.follow(Events(core, broker.vhosts, settings.event_sample_every))
    broker.eviction.configure(settings.queue_window_bytes, settings.memory_window_bytes)


def _count(ground: Ground, report: RecoveryReport, restore: Restore, began_ms: int) -> None:
    """Store the figures of recovery for metrics."""
    counts = ground.broker.core.counts
    counts.identity = report.uuid.hex()
    counts.recovered_records = int(report.records)
    counts.recovered_messages = int(restore.restored)
    counts.recovery_ms = ground.clock.monotonic_ms() - began_ms
    counts.clean_stop = report.created or report.clean_stop


def _tell(ground: Ground, report: RecoveryReport, restore: Restore) -> None:
    """Log the results of recovery."""
    log = ground.log
    for damage in report.damages + report.known + report.torn:
        ground.broker.core.damage.add(damage)
    for damage in report.damages:
        log.error("damage found and quarantined", place=str(damage))
    for damage in report.known:
        log.warning("damage found before is still in the journal", place=str(damage))
    for damage in report.torn:
        log.warning("torn end of the journal cut off", place=str(damage))
    for name in restore.orphaned:
        log.error("kept messages of a queue without a definition", queue=name)
    if report.created:
        log.info("new data directory", data_dir=str(ground.settings.data_dir))
        return
    log.info(
        "recovered",
        records=int(report.records),
        messages=int(restore.restored),
        last_stop="in order" if report.clean_stop else "a crash or a kill",
    )
    accounts = ground.broker.core.accounts
    if accounts.definition_bytes > accounts.definition_bytes_max:
        log.warning(
            "the definitions use more memory than definition_bytes_max: new ones are refused until "
            "some are deleted or definition_bytes_max is raised",
            definition_bytes=int(accounts.definition_bytes),
            definition_bytes_max=int(accounts.definition_bytes_max),
        )
