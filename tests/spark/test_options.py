"""Options: names in any case, nothing unknown, values in their ranges, no password anywhere."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from leveret.spark.columns.schema import PROPERTIES, ROW
from leveret.spark.offsets import EARLIEST, LATEST, Moment, parse_offsets
from leveret.spark.options.read import (
    OPTION_NAMES,
    STREAM_ONLY,
    STREAMS_ONLY,
    OptionError,
    Options,
    parse_options,
)
from leveret.spark.options.trust import TrustError, context_of
from support.brokers.secure import Pki

URI = "amqp://someone@localhost:5672/%2F"
LEAST = {"uri": URI, "stream": "orders"}


def parsed(**options: str) -> Options:
    return parse_options(LEAST | options)


def test_the_least_options_take_the_defaults() -> None:
    options = parse_options(LEAST)
    assert options.stream == "orders"
    assert options.fail_on_data_loss
    assert options.include_headers
    assert options.starting is None


def test_names_are_known_in_any_case() -> None:
    """Spark hands them on in lower case."""
    options = parse_options({"URI": URI, "stream": "s", "maxoffsetspertrigger": "5"})
    assert options.max_offsets_per_trigger == 5


def test_the_uri_has_a_name_that_spark_hides() -> None:
    assert parse_options({"url": URI, "stream": "s"}) == parse_options({"uri": URI, "stream": "s"})
    with pytest.raises(OptionError, match="'uri' is given twice"):
        parse_options({"uri": URI, "URL": URI, "stream": "s"})


def test_an_unknown_option_is_an_error_that_names_the_known() -> None:
    text = "unknown option 'startingoffset': did you mean startingOffsets?"
    with pytest.raises(OptionError, match=re.escape(text)) as caught:
        parsed(startingoffset="earliest")
    assert all(name in str(caught.value) for name in OPTION_NAMES)
    with pytest.raises(OptionError, match=r"unknown option 'colour'\. The options are: ackMode, "):
        parsed(colour="red")


def test_what_must_be_there_is_named() -> None:
    with pytest.raises(OptionError, match="option 'uri' is missing"):
        parse_options({"stream": "orders"})
    missing = "one of these options is missing: stream, streams, streamPattern, superStream, queue"
    with pytest.raises(OptionError, match=missing):
        parse_options({"uri": URI})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"streams": "a,b"}, "only one of these options can be given: stream, streams"),
        ({"queue": "q"}, "only one of these options can be given: stream, queue"),
        ({"subscribe": "a"}, "only one of these options can be given: stream, subscribe"),
        ({"assign": '{"a": [0]}'}, "only one of these options can be given: stream, assign"),
        (
            {"subscribePattern": "a.*"},
            "only one of these options can be given: stream, streamPattern",
        ),
        (
            {"startingTimestamp": "1", "startingOffsets": "earliest"},
            "only one of these options can be given: startingTimestamp, startingOffsets",
        ),
        (
            {"endingTimestamp": "1", "endingOffsetsByTimestamp": '{"orders": 1}'},
            "only one of these options can be given: endingTimestamp, endingOffsetsByTimestamp",
        ),
        ({"ackMode": "spool"}, "option 'ackMode' belongs to a queue"),
        ({"spoolDir": "/spool"}, "option 'spoolDir' belongs to a queue"),
        ({"maxTriggerDelay": "1s"}, "'maxTriggerDelay' has no effect without minOffsetsPerTrigger"),
        (
            {"startingOffsetsByTimestampStrategy": "latest"},
            "has no effect without startingTimestamp or startingOffsetsByTimestamp",
        ),
        ({"filterMatchUnfiltered": "true"}, "has no effect without filterValues"),
        ({"keyFile": "/k.pem"}, "'keyFile' has no effect without certificateFile"),
        ({"uri": "amqps://h", "httpUri": "http://h:15672"}, "'httpUri': http would send the passw"),
        ({"caFile": "ca.pem"}, "option 'caFile': not an absolute path"),
        (
            {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "9"},
            "option 'minOffsetsPerTrigger': 10 is more than maxOffsetsPerTrigger, 9",
        ),
    ],
)
def test_what_contradicts_is_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parsed(**options)


@pytest.mark.parametrize("name", STREAMS_ONLY)
def test_options_of_streams_are_refused_for_a_queue(name: str) -> None:
    text = {"uri": URI, "queue": "q", name: "1", **NEEDED.get(name, {})}
    with pytest.raises(OptionError, match="belongs to streams"):
        parse_options(text)


NEEDED = {
    "startingOffsetsByTimestampStrategy": {"startingTimestamp": "1"},
    "filterMatchUnfiltered": {"filterValues": "a"},
}


def test_files_of_tls_are_read_when_something_connects(tmp_path: Path) -> None:
    there = parsed(caFile=str(tmp_path / "none.pem")).parameters()
    with pytest.raises(TrustError, match=r"option 'caFile': .*none\.pem: No such file"):
        context_of(there)
    pki = Pki(tmp_path)
    shown = pki.broker
    trusting = parsed(caFile=str(pki.authority.certificate))
    made = context_of(trusting.parameters())
    assert made is not None
    assert [one["subject"] for one in made.get_ca_certs()]
    assert context_of(parsed().parameters()) is None
    wrong = parsed(certificateFile=str(shown.certificate), keyFile=str(tmp_path / "no.key"))
    with pytest.raises(TrustError, match="option 'certificateFile': "):
        context_of(wrong.parameters())
    # The password of the environment goes with them.
    assert trusting.parameters().username == "someone"


def test_a_queue_has_options_of_its_own() -> None:
    options = parse_options({"uri": URI, "queue": "q", "ackmode": "SPOOL", "spoolDir": "/s"})
    assert (options.queue, options.ack_mode, options.spool_dir) == ("q", "spool", "/s")
    assert options.title == "queue q"


def test_several_streams_are_names_with_commas_or_json() -> None:
    several = {"uri": URI, "streams": "a, b"}
    assert parse_options(several).names == ("a", "b")
    assert parse_options(several | {"streams": '["a,b", "c"]'}).names == ("a,b", "c")
    for wrong in ("", "a,,b", "a,a", "[1]", '["a"', "[]", "é" * 128):
        with pytest.raises(OptionError, match="option 'streams'"):
            parse_options(several | {"streams": wrong})


def test_partitions_of_a_super_stream_have_numbers() -> None:
    options = parse_options({"uri": URI, "superStream": "orders"})
    assert (options.names, options.partition_of("orders-12")) == (None, 12)
    assert parsed().partition_of("orders-12") == 0


def test_kafkas_columns_have_headers_on_request_only() -> None:
    assert not parsed(columns="kafka").include_headers
    assert parsed(columns="kafka", includeHeaders="true").include_headers
    assert not parsed(includeHeaders="false").include_headers


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uri", "http://localhost"),
        ("stream", ""),
        ("stream", "é" * 128),
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-1"),
        ("maxOffsetsPerTrigger", "1e3"),
        ("maxRecordsPerPartition", "0"),
        ("minPartitions", "0"),
        ("minPartitions", "100001"),
        ("prefetch", "0"),
        ("prefetch", "65536"),
        ("pollTimeoutMs", "0"),
        ("numRetries", "1001"),
        ("failOnDataLoss", "yes"),
        ("includeHeaders", "1"),
        ("transport", "pigeon"),
        ("columns", "offset,,body"),
        ("startingTimestamp", "2026-01-01"),
        ("startingTimestamp", "999999999999999"),
        ("startingOffsetsByTimestamp", "1"),
        ("startingOffsetsByTimestamp", '{"orders": -1}'),
        ("startingOffsetsByTimestamp", '{"orders": 1.5}'),
        ("endingTimestamp", "now"),
        ("maxBytesPerTrigger", "10 elephants"),
        ("maxBytesPerTrigger", "0"),
        ("httpUri", "localhost:15672"),
        ("httpUri", "http://localhost/api"),
        ("httpUri", "http://u:s3cret@localhost"),
        ("httpUri", "http://localhost:99999"),
        ("filterValues", "a,,b"),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"other": 5}'),
        ("startingOffsets", '{"orders": -3}'),
        ("startingOffsets", '{"orders": true}'),
        ("startingOffsets", '{"orders": 1, "more": 2}'),
        ("endingOffsets", "[1]"),
        ("passwordEnv", "not-a-name"),
        ("startingOffsets", '{"orders": {"1": 5}}'),
        ("startingOffsets", '{"orders": {"first": 5}}'),
        ("startingOffsets", '{"orders": {"0": "5"}}'),
        ("startingOffsets", '{"orders": 5, "more": {"0": 5}}'),
        ("startingOffsets", '{"orders": {}}'),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_option(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=f"option '{name}'"):
        parsed(**{name: text})


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        ("earliest", EARLIEST),
        ("Latest", LATEST),
        ('{"orders": 1200}', 1200),
        ('{"orders": -2}', EARLIEST),
        ('{"orders": -1}', LATEST),
        ('{"orders": 0}', 0),
    ],
)
def test_positions_are_words_or_json(text: str, offset: int) -> None:
    options = parsed(startingOffsets=text, endingOffsets=text)
    for positions in (options.starting, options.ending):
        assert positions is not None
        assert positions.of("orders") == offset


def test_positions_may_name_topics_and_partitions() -> None:
    """Kafka's form; a stream that is no partition is partition 0 of its own topic."""
    options = parsed(startingOffsets='{"orders": {"0": 23}}', endingOffsets='{"orders": {"0": -2}}')
    assert options.starting is not None
    assert options.starting.by_name({"orders": ("orders", 0)}).of("orders") == 23
    with pytest.raises(OptionError, match="a batch read cannot end at the earliest"):
        options.for_batch()
    whole = parse_options({"uri": URI, "superStream": "orders"})
    kafkas = parse_offsets('{"orders": {"1": 5, "0": -1}}')
    names = ["orders-0", "orders-1"]
    assert whole.positions_of(kafkas, names).of("orders-1") == 5
    with pytest.raises(ValueError, match="these are missing: orders-2"):
        whole.positions_of(kafkas, [*names, "orders-2"])
    with pytest.raises(ValueError, match="streams that are not read: partition 1 of orders"):
        whole.positions_of(kafkas, names[:1])


def test_kafkas_topics_have_partitions() -> None:
    options = parse_options({"uri": URI, "subscribe": "orders,a-b"})
    assert options.names is None
    assert options.title == "subscribe orders, a-b"
    places = {"orders-12": ("orders", 12), "orders": ("orders", 0), "a-b": ("a-b", 0)}
    for stream, place in places.items():
        assert options.place_of(stream) == place
    some = parse_options({"uri": URI, "assign": '{"orders": [3, 0], "x": [1]}'})
    assert some.kafka_topics == ("orders", "x")
    assert some.assigned == (("orders", 3), ("orders", 0), ("x", 1))
    pattern = parse_options({"uri": URI, "subscribepattern": "orders.*"})
    assert pattern.stream_pattern == "orders.*"


@pytest.mark.parametrize(
    "text", ["orders", "[]", "{}", '{"a": 0}', '{"a": []}', '{"a": ["0"]}', '{"a": [0, 0]}',
             '{"a": [-1]}', '{"": [0]}', '{"a": [true]}']
)  # fmt: skip
def test_a_wrong_assignment_is_an_error(text: str) -> None:
    with pytest.raises(OptionError, match="option 'assign': "):
        parse_options({"uri": URI, "assign": text})


def test_moments_are_numbers_or_json() -> None:
    options = parsed(startingTimestamp="5", endingOffsetsByTimestamp='{"orders": 7}')
    assert options.starting is not None
    assert options.ending is not None
    assert options.starting.of("orders") == Moment(5)
    assert options.ending.of("orders") == Moment(7)


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("30s", 30_000), ("15 M", 900_000), ("1h", 3_600_000)]
)
def test_spans_have_units(text: str, ms: int) -> None:
    options = parsed(minOffsetsPerTrigger="1", maxTriggerDelay=text)
    assert options.max_trigger_delay_ms == ms
    for wrong in ("15", "0s", "1 fortnight", ""):
        with pytest.raises(OptionError, match="is not a duration"):
            parsed(minOffsetsPerTrigger="1", maxTriggerDelay=wrong)


@pytest.mark.parametrize(("text", "size"), [("7", 7), ("10k", 10_240), ("2GB", 2**31), ("1b", 1)])
def test_sizes_may_have_units(text: str, size: int) -> None:
    assert parsed(maxBytesPerTrigger=text).max_bytes_per_trigger == size


@pytest.mark.parametrize("name", STREAM_ONLY)
def test_options_of_a_stream_are_refused_by_a_batch(name: str) -> None:
    options = parsed(**({"minOffsetsPerTrigger": "1", name: "1s" if "Delay" in name else "1"}))
    with pytest.raises(OptionError, match="PerTrigger' belongs to a streaming read"):
        options.for_batch()
    assert options.for_stream() is options


def test_options_of_a_batch_are_refused_by_a_stream() -> None:
    options = parsed(endingOffsets="latest")
    with pytest.raises(OptionError, match="'endingOffsets' belongs to a batch read"):
        options.for_stream()
    assert options.for_batch() is options


def test_a_batch_neither_starts_at_the_latest_nor_ends_at_the_earliest() -> None:
    with pytest.raises(OptionError, match="startingOffsets"):
        parsed(startingOffsets="latest").for_batch()
    with pytest.raises(OptionError, match="endingOffsets"):
        parsed(endingOffsets="earliest").for_batch()


def test_the_password_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROKER_PASSWORD", "s3cret")
    options = parsed(passwordEnv="BROKER_PASSWORD")
    assert options.parameters().password == "s3cret"
    assert b"s3cret" not in pickle.dumps(options)


def test_a_password_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BROKER_PASSWORD", raising=False)
    with pytest.raises(OptionError, match="BROKER_PASSWORD is not set"):
        parsed(passwordEnv="BROKER_PASSWORD").parameters()


def test_two_passwords_are_one_too_many() -> None:
    uri = "amqp://someone:s3cret@localhost"
    with pytest.raises(OptionError, match="passwordEnv") as caught:
        parsed(uri=uri, passwordEnv="BROKER_PASSWORD")
    assert "s3cret" not in str(caught.value)


def test_no_repr_and_no_error_shows_the_password() -> None:
    assert "s3cret" not in repr(parsed(uri="amqp://someone:s3cret@localhost"))
    for options in ({"uri": "amqp://u:s3cret@host:port"}, {"passwordEnv": "s3cret!"}):
        with pytest.raises(OptionError) as caught:
            parsed(**options)
        assert "s3cret" not in str(caught.value)


def test_every_option_and_column_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/spark/streams.md").read_text()
    names = [*OPTION_NAMES, *ROW.names, *PROPERTIES.names]
    assert [name for name in names if f"`{name}`" not in page] == []
