"""The generated modules are what the table says, and the table is AMQP 0-9-1's."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.wire import generate, methods
from leveret.wire.method import Method, payload
from leveret.wire.methods import decode_method
from leveret.wire.spec import BOTH, CLASSES, CLIENT, METHODS, PROPERTIES, REPLIES, SERVER

SOURCES = Path(__file__).parents[2] / "src" / "leveret" / "wire"


@pytest.mark.parametrize("path", sorted(generate.render()))
def test_generated_files_are_up_to_date(path: str) -> None:
    text = (SOURCES / path).read_text(encoding="utf-8")
    assert text == generate.render()[path], "run python -m leveret.wire.generate"


def test_no_module_is_left_over_from_an_older_table() -> None:
    there = {path.relative_to(SOURCES).as_posix() for path in SOURCES.glob("methods/*.py")}
    assert there == {path for path in generate.render() if path.startswith("methods/")}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_every_method_comes_back_with_its_defaults(name: str) -> None:
    spec = METHODS[name]
    kind = getattr(methods, spec.class_word)
    method = kind()
    assert isinstance(method, Method)
    raw = payload(method)
    ids = spec.class_id.to_bytes(2, "big") + spec.method_id.to_bytes(2, "big")
    assert raw.startswith(ids)
    again = decode_method(raw, 0, len(raw))
    assert type(again) is kind
    assert again == method
    assert name == again.NAME
    assert (spec.class_id, spec.method_id) == (again.CLASS_ID, again.METHOD_ID)
    assert again.HAS_CONTENT is spec.has_content
    assert again.FROM_CLIENT is (spec.sender in {CLIENT, BOTH})
    assert again.FROM_SERVER is (spec.sender in {SERVER, BOTH})
    assert REPLIES.get(name, ()) == again.REPLIES


def test_the_table_is_whole() -> None:
    assert [each.class_id for each in CLASSES] == [10, 20, 30, 40, 50, 60, 85, 90]
    assert len(METHODS) == 66
    assert len(PROPERTIES) == 14
    # Where RabbitMQ does not count on in steps.
    assert METHODS["exchange.unbind-ok"].method_id == 51
    assert METHODS["connection.blocked"].method_id == 60
    assert METHODS["connection.update-secret"].method_id == 70


def test_every_reply_is_a_method_of_the_other_side() -> None:
    for name, replies in REPLIES.items():
        for reply in replies:
            sender = METHODS[reply].sender
            assert sender == BOTH or sender != METHODS[name].sender


def test_a_log_line_shows_no_password() -> None:
    shown = repr(methods.ConnectionStartOk(response=b"\0guest\0secret"))
    assert "secret" not in shown
    assert "response=<13 bytes>" in shown
