"""What a sink's options and columns say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from leveret.spark.columns.schema import PROPERTIES, ROW, SchemaError
from leveret.spark.options.read import OptionError
from leveret.spark.write.options import WRITE_OPTION_NAMES, WriteOptions, parse_write_options
from leveret.spark.write.rows import RESERVED
from leveret.spark.write.schema import COLUMNS, PASSED_OVER, Layout, layout_of

URI = "amqp://localhost"


def options(**more: str) -> WriteOptions:
    return parse_write_options({"uri": URI} | more)


def schema(**kinds: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])  # type: ignore[arg-type]


BODY = {"body": BinaryType()}
TEXT = StringType()


# -- options ---------------------------------------------------------------------------------------


def test_what_is_not_said_is_the_default() -> None:
    said = options(stream="orders")
    assert (said.dedup, said.unroutable, said.dead_letter_exchange) == ("auto", "fail", None)
    assert said.title == "stream orders"
    assert options().title == "where its columns say"
    assert options(exchange="").title == "exchange by default"


def test_names_come_in_any_case_and_sparks_own_are_passed_over() -> None:
    raw = {"URI": URI, "routingkey": "k", "Exchange": "e", "checkpointLocation": "/data/c"}
    raw["queryName"] = "q"
    said = parse_write_options(raw)
    assert (said.exchange, said.routing_key) == ("e", "k")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"prefetch": "3"}, "unknown option 'prefetch'"),
        ({"subscribePattern": "s"}, "unknown option 'subscribePattern'"),
        ({"keyFile": "/k.pem"}, "'keyFile' has no effect without certificateFile"),
        ({"stream": "s", "queue": "q"}, "only one of these options can be given: stream, queue"),
        ({"stream": "s", "topic": "t"}, "only one of these options can be given: stream, topic"),
        ({"stream": "s", "copy": "true", "dedup": "rows"}, "option 'copy': dedup=rows"),
        ({"stream": "s", "routingKey": "k"}, "rows of option 'stream' go by its name"),
        ({"stream": ""}, "option 'stream': a name of 1 to 255 bytes"),
        ({"exchange": "e" * 256}, "option 'exchange': at most 255 bytes"),
        ({"dedup": "yes"}, "option 'dedup': 'yes' is none of: auto, staged, rows, none"),
        ({"unroutable": "ignore"}, "is none of: fail, drop, dead-letter:<exchange>"),
        ({"unroutable": "dead-letter:"}, "is none of: fail, drop, dead-letter:<exchange>"),
        ({"unroutable": "drop:x"}, "is none of: fail, drop, dead-letter:<exchange>"),
        ({"writeId": "w" * 129}, "option 'writeId': a name of 1 to 128 bytes"),
        ({"publisherName": ""}, "option 'publisherName': a name of 1 to 128 bytes"),
        ({"maxInFlight": "0"}, "is not a number from 1 to 1000000"),
        ({"stagingExpiryMs": "1000"}, "is not a number from 60000"),
        ({"uri": "amqp://u:p@h", "passwordEnv": "P"}, "the URI already contains a password"),
    ],
)
def test_what_contradicts_itself_is_refused(more: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text.replace("|", r"\|")):
        parse_write_options({"uri": URI} | more)


def test_the_uri_is_needed() -> None:
    with pytest.raises(OptionError, match="option 'uri' is missing"):
        parse_write_options({"stream": "s"})


def test_a_dead_letter_exchange_is_named_as_it_is() -> None:
    assert options(unroutable="Dead-Letter:Lost:1").dead_letter_exchange == "Lost:1"


def test_write_ids_belong_to_batch_saves_that_are_recognised_again() -> None:
    with pytest.raises(OptionError, match="belongs to a batch save"):
        options(writeId="w").for_stream()
    with pytest.raises(OptionError, match="nothing is recognised again"):
        options(writeId="w", dedup="none").for_batch()
    assert options(writeId="w", writeBatch="7").for_batch().write_batch == 7
    with pytest.raises(OptionError, match="'writeBatch' says nothing without writeId"):
        options(writeBatch="7").for_batch()
    assert options().for_stream().write_id is None


def test_a_password_is_in_no_text_of_the_options() -> None:
    assert "secret" not in repr(options(uri="amqp://u:secret@h/", stream="s"))


# -- columns ---------------------------------------------------------------------------------------


def test_all_columns_may_be_there() -> None:
    kinds = {**BODY, "exchange": TEXT, "routing_key": TEXT, "publishing_id": LongType()}
    whole = schema(**kinds, headers=MapType(TEXT, TEXT), properties=PROPERTIES)
    layout = layout_of(whole, options(publisherName="p"))
    assert layout == Layout(None, None, False, True, True, True)


@pytest.mark.parametrize(
    ("names", "more", "expected"),
    [
        ([], {"stream": "s"}, ("", "s", False)),
        ([], {"queue": "q"}, ("", "q", False)),
        ([], {"exchange": "e"}, ("e", "", False)),
        ([], {"exchange": "e", "routingKey": "k"}, ("e", "k", False)),
        (["routing_key"], {"exchange": "e"}, ("e", None, False)),
        (["routing_key"], {"exchange": "e", "routingKey": "k"}, ("e", "k", False)),
        (["exchange"], {}, (None, "", False)),
        (["exchange"], {"routingKey": "k"}, (None, "k", False)),
        (["exchange", "routing_key"], {}, (None, None, False)),
        (["stream"], {}, ("", None, True)),
        (["stream", "exchange", "routing_key"], {"stream": "s"}, ("", "s", False)),
        (["stream", "exchange", "routing_key"], {"exchange": "e"}, ("e", None, False)),
    ],
)
def test_an_option_wins_over_the_column_of_its_name(
    names: list[str], more: dict[str, str], expected: tuple[str | None, str | None, bool]
) -> None:
    layout = layout_of(schema(**BODY, **dict.fromkeys(names, TEXT)), options(**more))
    assert (layout.exchange, layout.routing_key, layout.by_stream) == expected


def test_kafkas_names_are_other_names() -> None:
    kafkas = schema(value=TEXT, key=BinaryType(), topic=TEXT, timestampType=IntegerType())
    layout = layout_of(kafkas, options())
    assert (layout.body, layout.key, layout.by_topic, layout.topic) == ("value", "key", True, None)
    assert layout.routing_key is None
    named = layout_of(kafkas, options(topic="t", routingKey="k"))
    assert (named.by_topic, named.topic, named.routing_key) == (True, "t", "k")
    # The other options of this kind win over the column.
    for more in ({"exchange": "e"}, {"stream": "s"}, {"queue": "q"}):
        assert not layout_of(kafkas, options(**more)).by_topic


def test_what_was_read_can_be_written_elsewhere() -> None:
    layout = layout_of(ROW, options(stream="copy"))
    assert layout == Layout("", "copy", False, True, True, False)


@pytest.mark.parametrize(
    ("columns", "more", "text"),
    [
        ({"payload": BinaryType()}, {"stream": "s"}, "there is no column 'payload'"),
        ({**BODY, "value": TEXT}, {"stream": "s"}, "'body' and 'value' mean the same"),
        ({**BODY, "key": TEXT, "routing_key": TEXT}, {"exchange": "e"}, "and 'key' mean the same"),
        ({**BODY, "topic": TEXT, "stream": TEXT}, {}, "'stream' and 'topic' both say where"),
        ({**BODY, "raw_properties": BinaryType()}, {"stream": "s"}, "set the option copy to true"),
        (BODY, {"stream": "s", "copy": "true"}, "there is no column 'raw_properties'"),
        (
            {**BODY, "raw_properties": BinaryType(), "publishing_id": LongType()},
            {"stream": "s", "copy": "true", "publisherName": "p"},
            "'publishing_id' would change the properties",
        ),
        ({"routing_key": TEXT}, {"exchange": "e"}, "there is no column 'body' or 'value'"),
        ({"body": LongType()}, {"stream": "s"}, "'body' is binary or string, not bigint"),
        (BODY, {}, "nothing says where rows go"),
        ({**BODY, "stream": TEXT, "exchange": TEXT}, {}, "both say where a row goes"),
        ({**BODY, "stream": TEXT}, {"routingKey": "k"}, "'stream' is the routing key"),
        ({**BODY, "headers": MapType(TEXT, LongType())}, {"stream": "s"}, "is map<string,string>"),
        ({**BODY, "headers": TEXT}, {"stream": "s"}, "'headers' is map<string,string> or array"),
        ({**BODY, "publishing_id": LongType()}, {"stream": "s"}, "needs the option publisherName"),
        (BODY, {"stream": "s", "publisherName": "p"}, "nothing without a column 'publishing_id'"),
        (
            {**BODY, "properties": schema(priority=TEXT)},
            {"stream": "s"},
            "'properties.priority' is int, not string",
        ),
        (
            {**BODY, "properties": schema(colour=TEXT)},
            {"stream": "s"},
            "there is no column 'properties.colour'",
        ),
        ({**BODY, "properties": IntegerType()}, {"stream": "s"}, "'properties' is struct, not int"),
    ],
)
def test_columns_that_say_nothing_are_refused(
    columns: dict[str, object], more: dict[str, str], text: str
) -> None:
    with pytest.raises(SchemaError, match=text):
        layout_of(schema(**columns), options(**more))


@pytest.mark.parametrize("more", [{"dedup": "rows"}, {"dedup": "none"}, {"writeId": "w"}])
def test_publishing_ids_are_a_dedup_of_their_own(more: dict[str, str]) -> None:
    said = options(stream="s", publisherName="p", **more)
    with pytest.raises(SchemaError, match="drop it, or"):
        layout_of(schema(**BODY, publishing_id=LongType()), said)


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = StructType([StructField("body", BinaryType()), StructField("body", BinaryType())])
    with pytest.raises(SchemaError, match="'body' is there twice"):
        layout_of(twice, options(stream="s"))


# -- where rows go ---------------------------------------------------------------------------------


def test_a_place_tells_destinations_apart() -> None:
    given: list[dict[str, str]] = [
        {"exchange": "a b"},
        {"exchange": "a", "routingKey": "b"},
        {"exchange": "a key:b"},
        {"exchange": "a"},
        {"exchange": "a", "routingKey": ""},
        {"exchange": ""},
        {"queue": "a"},
        {"queue": "exchange:a"},
        {"topic": "a"},
        {"topic": "a", "routingKey": "b"},
        {"routingKey": "a"},
        {},
        {"queue": "ä" * 100},
        {"queue": "ä" * 99 + "b"},
    ]
    places = [options(**more).place for more in given]
    assert len(set(places)) == len(places)
    assert all(0 < len(place.encode()) <= 255 for place in places)
    assert options(stream="q").place == options(queue="q").place == "queue:q"
    assert options(exchange="", routingKey="q").place == "queue:q"
    assert options(exchange="amq.topic", routingKey="a.#").place == "exchange:amq.topic key:a.#"


# -- the page --------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs/reference/spark/sink.md"


def table(title: str) -> dict[str, list[str]]:
    """Return the rows of a section's table by their first cell."""
    section = PAGE.read_text().split(f"## {title}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[1:] for row in cells}


def test_the_page_lists_the_options_in_their_order_with_their_defaults() -> None:
    listed = table("Options")
    assert list(listed) == list(WRITE_OPTION_NAMES)
    plain = options()
    for name, default in (
        ("dedup", plain.dedup),
        ("writeBatch", plain.write_batch),
        ("lowerBatch", plain.lower_batch),
        ("unroutable", plain.unroutable),
        ("maxInFlight", plain.max_in_flight),
        ("confirmTimeoutMs", plain.confirm_timeout_ms),
        ("stagingExpiryMs", plain.staging_expiry_ms),
        ("retryTimeoutMs", plain.retry_timeout_ms),
    ):
        assert listed[name][0].strip("`") == str(default)


def test_the_page_lists_the_columns_and_their_types() -> None:
    listed = table("Columns")
    assert {name: cells[0] for name, cells in listed.items()} == {
        name: words for name, (_, words) in COLUMNS.items()
    }
    section = PAGE.read_text().split("## Columns\n")[1]
    assert f"({', '.join(f'`{name}`' for name in PASSED_OVER)})" in section
    assert all(f"`{name}`" in " ".join(section.split()) for name in RESERVED)
