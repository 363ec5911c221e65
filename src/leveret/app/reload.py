"""Settings that are taken while a broker runs, and those that wait for its next start.

What is taken can be changed at once for all that it concerns.  A change of anything else is told
of, because who made it expects it to hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.app.engine import Engine, upkeep_limits
from leveret.app.ground import Ground
from leveret.app.listeners import Listeners
from leveret.config import ConfigError, Settings

#: The settings that are taken; the description of configuration lists them.
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
    """Take what changed of the settings and can be taken; all or nothing, and told in the log."""
    try:
        found = read()
    except ConfigError as error:
        fault = error
    else:
        _compare(ground, engine, listeners, found)
        return
    reason = "; ".join(fault.lines)
    ground.log.error("the settings are not reloaded, all stay as they are", reason=reason)


def _compare(ground: Ground, engine: Engine, listeners: Listeners, found: Settings) -> None:
    """Take what can be taken of settings that fit, and tell of it."""
    before = ground.settings
    changed = [
        name for name in type(before).model_fields if getattr(found, name) != getattr(before, name)
    ]
    taken = [name for name in changed if name in RELOADED]
    waiting = [name for name in changed if name not in RELOADED]
    if taken:
        ground.settings = before.model_copy(update={name: getattr(found, name) for name in taken})
        _take(ground, engine, listeners)
        ground.log.info("settings are reloaded", changed=", ".join(taken))
    if waiting:
        ground.log.warning("settings that changed need a restart", names=", ".join(waiting))
    if not changed:
        ground.log.info("no setting changed")


def _take(ground: Ground, engine: Engine, listeners: Listeners) -> None:
    """Have all parts keep to the settings that are in effect."""
    settings = ground.settings
    ground.parts.threshold.set(settings.log_level)
    ground.keep_to(settings)
    windows = settings.queue_window_bytes, settings.memory_window_bytes
    ground.broker.eviction.configure(*windows)
    engine.upkeep.limits = upkeep_limits(settings)
    listeners.take_settings()
    # An alarm begins or ends by the new limits, and those who waited are told.
    ground.broker.judge_memory()
    engine.space.judge()
    engine.runner.run()
