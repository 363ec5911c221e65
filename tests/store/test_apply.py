"""Payloads that check but are not what their kind asks for: damage, and nothing else."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.store.disks.recording import Image, RecordingDisk
from leveret.store.journal.files import journal_path
from leveret.store.records.record import (
    ACK,
    COUNTER,
    DEFINE,
    END,
    MOVE,
    PUBLISH,
    REQUEUE,
    SNAPSHOT,
    TX,
    Damaged,
    encode_group_header,
    encode_record,
    is_kind,
)
from leveret.store.recovery.apply import Applier
from support.store.store_model import Store, Told, message

KINDS = [kind for kind in range(256) if is_kind(kind) and kind not in (SNAPSHOT, END)]


@settings(max_examples=500)
@given(st.sampled_from([*KINDS, 0, 200]), st.binary(max_size=90), st.binary(max_size=9))
def test_any_payload_is_told_or_refused(kind: int, payload: bytes, around: bytes) -> None:
    data = around + payload + around
    with contextlib.suppress(Damaged):
        Applier(Told()).apply(kind, data, len(around), len(around) + len(payload))


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (PUBLISH, b""),
        (PUBLISH, b"\xff\xff\xff\xff" + bytes(40)),
        (PUBLISH, b"\x02\0\0\0" + bytes(30)),
        (PUBLISH, bytes(4) + bytes(9) + b"\xff" + bytes(20)),
        (PUBLISH, bytes(4) + bytes(9) + b"\0\xff" + bytes(20)),
        (PUBLISH, bytes(4) + bytes(9) + b"\0\0" + b"\xff\0\0\0"),
        (PUBLISH, bytes(4) + bytes(9) + b"\0\0" + b"\xff\xff\xff\xff"),
        (MOVE, bytes(30)),
        (ACK, b""),
        (ACK, bytes(25)),
        (REQUEUE, bytes(19)),
        (TX, b"\x01\0\0\0\x04"),
        (TX, b"\0\0"),
        (TX, b"\xff\xff\xff\xff\x04"),
        (TX, bytes(5)),
        (DEFINE, b""),
        (DEFINE, b"\x05que"),
        (DEFINE, b"\x01q\0\0\0\x09"),
        (DEFINE, b"\x01\xff\0\0\0\0"),
        (COUNTER, b"\x05a" + bytes(8)),
        (COUNTER, b"\x01\xff" + bytes(8)),
        (0, b""),
        (14, b""),
    ],
)
def test_payloads_that_do_not_fit_are_damage(kind: int, payload: bytes) -> None:
    with pytest.raises(Damaged):
        Applier(Told()).apply(kind, payload, 0, len(payload))


def test_a_record_with_a_payload_that_does_not_fit_is_kept_apart_and_the_rest_goes_on() -> None:
    store = Store(RecordingDisk())
    store.define_queue(1, "q")
    store.publish(message(b"before"), 1)
    store.sync()
    assert isinstance(store.disk, RecordingDisk)
    image: Image = store.disk.image()
    seed = store.report.seed
    records = encode_record(REQUEUE, b"short", seed ^ 2) + encode_record(99, b"", seed ^ 2)
    header = encode_group_header(seed, 1, 2, len(records), 1, 2)
    image.files[journal_path(1)] += header + records
    after = Store(RecordingDisk(image))
    assert after.state.seen() == store.state.seen()
    assert [place.what for place in after.report.torn] == [
        f"a record of kind {REQUEUE}: a record does not have the size of its kind",
        "a record of kind 99: a record of the unknown kind 99",
    ]
    assert len(after.disk.list("quarantine")) == 2
    after.publish(message(b"after"), 1)
    after.sync()
    assert isinstance(after.disk, RecordingDisk)
    third = Store(RecordingDisk(after.disk.image()))
    assert third.state.seen() == after.state.seen()
