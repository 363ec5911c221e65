r"""The body of a commit is JSON of whoever may write to the default exchange, and is only refused.

JSON can write what no text of AMQP can hold: `"\ud800"` is half a character.  An answer that quotes
it must be one that can be sent: what goes wrong while an error is told stops the broker.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from leveret.broker.sinks.commit import COMMIT_KEY
from leveret.errors import AmqpError, PreconditionFailed
from leveret.escaping import escaped
from leveret.limits import SHORT_STRING_BYTES_MAX
from support.node.core import Node
from support.wire.raw_codec import method, publish

#: What no text can hold; a surrogate that stands for a byte; what fits no reply; what is not seen.
TEXTS: Final = ["\ud800", "a\udfff", "\udc80", "é" * 300, "x" * 5000, "\x1b[2J\n", "", "\ufffe"]


def shown(text: str) -> str:
    return ascii(text)[1:13]


GOOD: Final[dict[str, Any]] = {
    "sink": "s", "destination": "d", "batch": 1, "queues": ["q"], "unroutable": "fail",
    "lower": "drop",
}  # fmt: skip


def bodies(text: str) -> dict[str, object]:
    """Bodies with a text in each place that JSON has one in."""
    found: dict[str, object] = {name: {**GOOD, name: text} for name in GOOD}
    found["a queue"] = {**GOOD, "queues": [text]}
    found["a dead-letter exchange"] = {**GOOD, "unroutable": f"dead-letter:{text}"}
    found["another field"] = {**GOOD, text: 1}
    found["a text"] = text
    found["a deep one"] = {**GOOD, "sink": {text: [text]}}
    return found


@pytest.mark.parametrize("mode", ["plain", "confirm.select", "tx.select"])
@pytest.mark.parametrize("text", TEXTS, ids=shown)
def test_whatever_is_in_it_is_refused_and_nothing_else(text: str, mode: str) -> None:
    node = Node()
    node.add_user("writer", write="^amq.default$")
    for place, body in bodies(text).items():
        peer = node.connect_as("writer")
        if mode != "plain":
            peer.call(1, mode)
        peer.send(publish(1, "", COMMIT_KEY, json.dumps(body).encode(), mandatory=True))
        node.sync()
        confirms = mode == "confirm.select"
        refusal = ["basic.return", "basic.nack"] if confirms else ["channel.close"]
        assert peer.names() == refusal, place
        for _, line in peer.connection.log:
            escaped(line).encode()
        # The connection goes on, and so does the broker.
        peer.send(method(2, "channel.open"))
        assert peer.names() == ["channel.open-ok"], place
        peer.lose()
    assert not node.staging.sinks.by_place


@pytest.mark.parametrize("text", [*TEXTS, "\ud800" * 300], ids=shown)
def test_every_error_can_be_told(text: str) -> None:
    for error in (AmqpError(text), PreconditionFailed(f"no '{text}' here")):
        assert len(error.short_text.encode()) <= SHORT_STRING_BYTES_MAX
