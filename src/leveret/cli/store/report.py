"""Print the results of a survey, for people or as JSON."""

from __future__ import annotations

from pathlib import Path

from leveret.cli.printing import output
from leveret.cli.printing.rows import print_rows
from leveret.sizes import counted
from leveret.store.damage import Damage
from leveret.store.survey.holdings import Holding
from leveret.store.survey.survey import Survey


def print_object(found: object) -> None:
    """Print one JSON object."""
    output.say_json(found)


def as_object(directory: Path, survey: Survey) -> dict[str, object]:
    """Return a survey as a JSON object."""
    queues = queue_rows(survey)
    return {
        "directory": str(directory),
        "whole": not survey.damages,
        "uuid": survey.identity.uuid.hex(),
        "seed_from": survey.identity.source,
        "clean_stop": survey.clean_stop,
        "messages": sum(int(row["messages"]) for row in queues),
        "message_bytes": sum(int(row["bytes"]) for row in queues),
        "lost": survey.lost,
        "lost_messages": lost_messages(survey),
        "definitions": len(survey.holdings.catalog),
        "queues": queues,
        "files": file_rows(survey),
        "damages": [_damage(damage) for damage in survey.damages],
        "torn": [_damage(damage) for damage in survey.torn],
    }


def queue_rows(survey: Survey) -> list[dict[str, int | str]]:
    """Return a row for each existing queue."""
    return [_queue(queue) for queue in survey.holdings.living()]


def file_rows(survey: Survey) -> list[dict[str, object]]:
    """Return a row for each file."""
    return [
        {
            "file": report.path,
            "bytes": int(report.bytes),
            "records": int(report.records),
            "live": int(report.live),
            "live_bytes": int(report.live_bytes),
            "dead": int(report.dead),
            "damaged": len(report.damages),
            "needed": report.needed,
        }
        for report in survey.files
    ]


def print_report(directory: Path, survey: Survey) -> None:
    """Print a survey for people."""
    rows: list[dict[str, object]] = [
        {name: value for name, value in row.items() if name != "needed"}
        for row in file_rows(survey)
    ]
    print_rows(rows, None, "table")
    queues = queue_rows(survey)
    if queues:
        output.say("")
        print_rows(queues, None, "table")
    output.say("")
    messages = sum(int(row["messages"]) for row in queues)
    output.say(
        f"{directory}: {counted(len(survey.holdings.catalog), 'definition')}, "
        f"{counted(len(queues), 'queue')}, {counted(messages, 'message')}; {_stop(survey)}"
    )
    print_lost(survey)


def print_lost(survey: Survey) -> None:
    """Print the damaged, torn and lost data."""
    for damage in survey.torn:
        output.say(f"torn by a crash, never confirmed: {_line(damage)}")
    for damage in survey.damages:
        output.say(f"damaged: {_line(damage)}")
    if survey.costly:
        output.say(f"lost: {_lost(survey)}, as far as they can be counted")
    elif survey.damages:
        output.say("damaged, but nothing is lost")
    else:
        output.say("whole")


def lost_messages(survey: Survey) -> int:
    """Return the number of lost messages of existing queues, which the queues' rows show."""
    return sum(int(queue.lost) for queue in survey.holdings.living())


def _lost(survey: Survey) -> str:
    """Return the losses in words: messages, and records without a known queue."""
    messages = lost_messages(survey)
    others = survey.lost - messages
    parts = [(messages, "message"), (others, "other record" if messages else "record")]
    return " and ".join(counted(number, what) for number, what in parts if number)


def _stop(survey: Survey) -> str:
    return "stopped cleanly" if survey.clean_stop else "not stopped cleanly"


def _line(damage: Damage) -> str:
    return f"{damage.path}:{damage.position}, {counted(damage.size, 'byte')}: {damage.said}"


def _damage(damage: Damage) -> dict[str, object]:
    """Return a damaged place as a JSON object; `lost` is -1 if the loss is unknown."""
    return {
        "file": damage.path,
        "position": int(damage.position),
        "bytes": int(damage.size),
        "what": damage.said,
        "lost": -1 if damage.records is None else damage.records,
    }


def _queue(queue: Holding) -> dict[str, int | str]:
    """Return the row of a queue."""
    journal, journal_bytes = queue.journal_only()
    return {
        "vhost": queue.vhost,
        "name": queue.name,
        "id": int(queue.queue_id),
        "type": queue.type,
        "messages": int(queue.chunk_messages) + journal,
        "bytes": int(queue.chunk_bytes) + journal_bytes,
        "dead_rows": int(queue.dead_rows),
        "lost": int(queue.lost),
    }
