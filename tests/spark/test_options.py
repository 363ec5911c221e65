"""Options: names in any case, nothing unknown, values in their ranges, no password anywhere."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from leveret.spark.offsets import EARLIEST, LATEST
from leveret.spark.options import OPTION_NAMES, OptionError, Options, parse_options
from leveret.spark.schema import PROPERTIES, ROW

URI = "amqp://someone@localhost:5672/%2F"
LEAST = {"uri": URI, "stream": "orders"}


def parsed(**options: str) -> Options:
    return parse_options(LEAST | options)


def test_the_least_options_take_the_defaults() -> None:
    options = parse_options(LEAST)
    assert options.stream == "orders"
    assert options.fail_on_data_loss
    assert options.include_headers
    assert options.starting_offset is None


def test_names_are_known_in_any_case() -> None:
    """Spark hands them on in lower case."""
    options = parse_options({"URI": URI, "stream": "s", "maxoffsetspertrigger": "5"})
    assert options.max_offsets_per_trigger == 5


def test_an_unknown_option_is_an_error_that_names_the_known() -> None:
    with pytest.raises(OptionError, match="unknown option 'startingOffset'") as caught:
        parsed(startingOffset="earliest")
    assert all(name in str(caught.value) for name in OPTION_NAMES)


@pytest.mark.parametrize("missing", ["uri", "stream"])
def test_what_must_be_there_is_named(missing: str) -> None:
    with pytest.raises(OptionError, match=f"option '{missing}' is missing"):
        parse_options({key: value for key, value in LEAST.items() if key != missing})


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
        ("transport", "bulk"),
        ("startingOffsets", "first"),
        ("startingOffsets", '{"other": 5}'),
        ("startingOffsets", '{"orders": -3}'),
        ("startingOffsets", '{"orders": true}'),
        ("startingOffsets", '{"orders": 1, "more": 2}'),
        ("endingOffsets", "[1]"),
        ("passwordEnv", "not-a-name"),
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
    assert parsed(startingOffsets=text).starting_offset == offset
    assert parsed(endingOffsets=text).ending_offset == offset


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger"])
def test_options_of_a_stream_are_refused_by_a_batch(name: str) -> None:
    options = parsed(**{name: "1"})
    with pytest.raises(OptionError, match=f"'{name}' belongs to a streaming read"):
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
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    names = [*OPTION_NAMES, *ROW.names, *PROPERTIES.names]
    assert [name for name in names if f"`{name}`" not in page] == []
