"""Reloads settings while a broker runs.

A reloaded setting takes effect at once in all parts.  A changed setting that needs a restart is
logged.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.app.engine import Engine, upkeep_limits
from leveret.app.ground import Ground
from leveret.app.listeners import Listeners
from leveret.config import ConfigError, Settings

#: The reloadable settings, which docs/reference/operation/configuration.md lists.
RELOADED: Final = (
    "log_level",
    "memory_bytes_max",
    "definition_bytes_max",
    "connection_bytes_max",
    "unacked_bytes_max",
    "queue_window_bytes",
    "memory_window_bytes",
    "disk_free_bytes_min",
    "journal_bytes_max",
    "compact_records_min",
    "compact_live_percent",
    "sync_interval_ms",
    "message_bytes_max",
    "frame_bytes_max",
    "channels_max",
    "heartbeat_seconds",
    "consumer_timeout_ms",
    "handshake_seconds",
    "loopback_users",
    "http_hosts",
    "login_failure_delay_ms",
)


def reload_settings(
    ground: Ground, engine: Engine, listeners: Listeners, read: Callable[[], Settings]
) -> None:
    """Apply the changed settings that are reloadable, or none if any is invalid; log the result."""
    try:
        found = read()
    except ConfigError as error:
        fault = error
    else:
        _compare(ground, engine, listeners, found)
        return
    reason = "; ".join(fault.lines)
    ground.log.error("the settings were not reloaded and stay unchanged", reason=reason)


def _compare(ground: Ground, engine: Engine, listeners: Listeners, found: Settings) -> None:
    """Apply the changed settings that are reloadable, and log all changes."""
    before = ground.settings
    changed = [
        name for name in type(before).model_fields if getattr(found, name) != getattr(before, name)
    ]
    taken = [name for name in changed if name in RELOADED]
    waiting = [name for name in changed if name not in RELOADED]
    if taken:
        ground.settings = before.model_copy(update={name: getattr(found, name) for name in taken})
        _take(ground, engine, listeners)
        ground.log.info("settings reloaded", changed=", ".join(taken))
    if waiting:
        ground.log.warning("changed settings need a restart", names=", ".join(waiting))
    if not changed:
        ground.log.info("no setting changed")


def _take(ground: Ground, engine: Engine, listeners: Listeners) -> None:
    """Apply the settings in effect to all parts."""
    settings = ground.settings
    ground.parts.threshold.set(settings.log_level)
    ground.keep_to(settings)
    windows = settings.queue_window_bytes, settings.memory_window_bytes
    ground.broker.eviction.configure(*windows)
    engine.upkeep.limits = upkeep_limits(settings)
    listeners.take_settings()
    # The new limits may begin or end an alarm, of which publishers are notified.
    ground.broker.judge_memory()
    engine.space.judge()
    engine.runner.run()
