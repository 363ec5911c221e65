"""Metrics for Prometheus: RabbitMQ's series with its labels, ours, and totals that never fall."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.client import BasicProperties, Returned
from leveret.client.blocking import connect
from leveret.management.metrics import series as table
from leveret.wire.buffer import BUILD
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port
from support.http.metrics_text import Metrics, ask, metrics_port, scrape

PAGE = (Path(__file__).parents[2] / "docs/reference/operation/metrics.md").read_text()

QUEUE_TYPES = {"rabbit_classic_queue", "rabbit_quorum_queue", "rabbit_stream_queue"}


def _each(names: tuple[str, ...], labels: tuple[str, ...]) -> dict[str, set[str]]:
    return {name: set(labels) for name in names}


#: What the public dashboard RabbitMQ-Overview asks for, with the labels of each.
OVERVIEW = {
    "rabbitmq_identity_info": {
        "rabbitmq_node",
        "rabbitmq_cluster",
        "rabbitmq_cluster_permanent_id",
        "rabbitmq_endpoint",
    },
    "rabbitmq_build_info": {
        "rabbitmq_version",
        "erlang_version",
        "prometheus_plugin_version",
        "prometheus_client_version",
        "product_name",
        "product_version",
        "build",
    },
    **_each(
        (
            "rabbitmq_erlang_uptime_seconds",
            "rabbitmq_connections",
            "rabbitmq_channels",
            "rabbitmq_queues",
            "rabbitmq_queue_messages_ready",
            "rabbitmq_queue_messages_unacked",
            "rabbitmq_resident_memory_limit_bytes",
            "rabbitmq_process_resident_memory_bytes",
            "rabbitmq_disk_space_available_bytes",
            "rabbitmq_disk_space_available_limit_bytes",
            "rabbitmq_process_max_fds",
            "rabbitmq_process_open_fds",
            "rabbitmq_connections_opened_total",
            "rabbitmq_connections_closed_total",
            "rabbitmq_channels_opened_total",
            "rabbitmq_channels_closed_total",
            "rabbitmq_queues_declared_total",
            "rabbitmq_queues_created_total",
            "rabbitmq_queues_deleted_total",
        ),
        (),
    ),
    **_each(
        (
            "rabbitmq_global_publishers",
            "rabbitmq_global_consumers",
            "rabbitmq_global_messages_received_total",
            "rabbitmq_global_messages_received_confirm_total",
            "rabbitmq_global_messages_confirmed_total",
            "rabbitmq_global_messages_routed_total",
            "rabbitmq_global_messages_unroutable_dropped_total",
            "rabbitmq_global_messages_unroutable_returned_total",
        ),
        ("protocol",),
    ),
    **_each(
        (
            "rabbitmq_global_messages_delivered_total",
            "rabbitmq_global_messages_delivered_consume_auto_ack_total",
            "rabbitmq_global_messages_delivered_consume_manual_ack_total",
            "rabbitmq_global_messages_delivered_get_auto_ack_total",
            "rabbitmq_global_messages_delivered_get_manual_ack_total",
            "rabbitmq_global_messages_redelivered_total",
            "rabbitmq_global_messages_acknowledged_total",
            "rabbitmq_global_messages_get_empty_total",
        ),
        ("protocol", "queue_type"),
    ),
    "rabbitmq_message_size_bytes_bucket": {"protocol", "le"},
    "rabbitmq_message_size_bytes_count": {"protocol"},
    "rabbitmq_message_size_bytes_sum": {"protocol"},
}

#: What alerts and other dashboards ask for.
FURTHER = {
    **_each(
        (
            "rabbitmq_consumers",
            "rabbitmq_queue_messages",
            "rabbitmq_queue_messages_bytes",
            "rabbitmq_queue_messages_ready_bytes",
            "rabbitmq_queue_messages_unacked_bytes",
            "rabbitmq_queue_messages_persistent",
            "rabbitmq_queue_messages_persistent_bytes",
            "rabbitmq_queue_messages_ram",
            "rabbitmq_queue_messages_ram_bytes",
            "rabbitmq_queue_consumers",
            "rabbitmq_queue_consumer_utilisation",
            "rabbitmq_queue_consumer_capacity",
            "rabbitmq_queue_head_message_timestamp",
            "rabbitmq_queue_disk_reads_total",
            "rabbitmq_queue_disk_writes_total",
            "rabbitmq_io_read_ops_total",
            "rabbitmq_io_read_bytes_total",
            "rabbitmq_io_read_time_seconds_total",
            "rabbitmq_io_write_ops_total",
            "rabbitmq_io_write_bytes_total",
            "rabbitmq_io_write_time_seconds_total",
            "rabbitmq_io_sync_ops_total",
            "rabbitmq_io_sync_time_seconds_total",
            "rabbitmq_connection_incoming_bytes_total",
            "rabbitmq_connection_outgoing_bytes_total",
            "rabbitmq_connection_incoming_packets_total",
            "rabbitmq_connection_outgoing_packets_total",
            "rabbitmq_connection_channels",
            "rabbitmq_channel_messages_unacked",
            "rabbitmq_channel_messages_unconfirmed",
            "rabbitmq_channel_prefetch",
            "rabbitmq_channel_messages_uncommitted",
            "rabbitmq_channel_acks_uncommitted",
            "process_start_time_seconds",
            "rabbitmq_queue_messages_ready_ram",
            "rabbitmq_queue_messages_unacked_ram",
            "rabbitmq_queue_process_memory_bytes",
            "rabbitmq_queue_messages_published_total",
            "rabbitmq_queue_exchange_messages_published_total",
            *(
                f"rabbitmq_{of}_{name}_total"
                for of in ("queue", "channel")
                for name in (
                    "get",
                    "get_ack",
                    "get_empty",
                    "messages_acked",
                    "messages_delivered",
                    "messages_delivered_ack",
                    "messages_redelivered",
                )
            ),
            *(
                f"rabbitmq_{of}_messages_{name}_total"
                for of in ("channel", "exchange")
                for name in ("published", "confirmed", "unroutable_dropped", "unroutable_returned")
            ),
            "rabbitmq_alarms_memory_used_watermark",
            "rabbitmq_alarms_free_disk_space_watermark",
            "rabbitmq_alarms_file_descriptor_limit",
        ),
        (),
    ),
    **_each(
        (
            "rabbitmq_auth_attempts_total",
            "rabbitmq_auth_attempts_succeeded_total",
            "rabbitmq_auth_attempts_failed_total",
        ),
        ("protocol",),
    ),
    **_each(
        (
            "rabbitmq_global_messages_dead_lettered_expired_total",
            "rabbitmq_global_messages_dead_lettered_maxlen_total",
            "rabbitmq_global_messages_dead_lettered_rejected_total",
            "rabbitmq_global_messages_dead_lettered_delivery_limit_total",
            "rabbitmq_global_messages_dead_lettered_confirmed_total",
        ),
        ("queue_type", "dead_letter_strategy"),
    ),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of this file alone: its totals are of all that was done."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture
def api(broker: BrokerProcess) -> Iterator[Api]:
    """Who operates it."""
    connection = Api(broker.data_dir / "management.sock")
    yield connection
    connection.close()


def counters(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Return all samples that may only grow."""
    ends = ("_total", "_bucket", "_count", "_sum")
    return {key: value for key, value in metrics.samples.items() if key[0].endswith(ends)}


def traffic(broker: BrokerProcess, name: str) -> None:
    """Have one of everything happen that is counted, and leave one message and one delivery."""
    with connect(broker.uri) as connection:
        channel = connection.channel()
        for queue in (f"{name}.a", f"{name}.b"):
            channel.queue_declare(queue, durable=True)
        channel.publish(b"x" * 50, "", f"{name}.a")
        channel.publish(b"lost", "", f"{name}.nowhere")
        assert channel.get(f"{name}.b", no_ack=True) is None
        confirming = connection.channel()
        confirming.confirm_select()
        timed = BasicProperties(delivery_mode=2, timestamp=1_700_000_000)
        for _ in range(4):
            confirming.publish(b"y" * 5000, "", f"{name}.b", timed)
        with pytest.raises(Returned):
            confirming.publish(b"back", "", f"{name}.nowhere", mandatory=True)
        assert channel.get(f"{name}.a", no_ack=True) is not None
        taken = channel.get(f"{name}.b", no_ack=False)
        assert taken is not None
        channel.reject(taken.delivery_tag, requeue=True)
        with channel.consume(f"{name}.b") as deliveries:
            first = next(iter(deliveries))
            assert first.redelivered
            channel.ack(first.delivery_tag)
        refused = channel.get(f"{name}.b", no_ack=False)
        assert refused is not None
        channel.reject(refused.delivery_tag, requeue=False)


def test_every_series_of_the_dashboards_is_there_with_its_labels(broker: BrokerProcess) -> None:
    traffic(broker, "all")
    found = scrape(broker)
    assert len({name for name in OVERVIEW if "bucket" not in name}) >= 34
    for name, labels in {**OVERVIEW, **FURTHER}.items():
        assert found.labels.get(name) == labels, name
    assert found.value("rabbitmq_identity_info", rabbitmq_endpoint="aggregated") == 1
    assert found.value("rabbitmq_build_info", product_name="Leveret", build=BUILD) == 1
    types = {
        dict(labels)["queue_type"]
        for name, labels in found.samples
        if name == "rabbitmq_global_messages_delivered_total"
    }
    assert types == QUEUE_TYPES
    assert found.value("rabbitmq_queue_head_message_timestamp") == 1_700_000_000


def test_sizes_are_in_the_classes_that_dashboards_spell(broker: BrokerProcess) -> None:
    before = scrape(broker)
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for size in (100, 101, 1000, 10_001, 100_001):
            channel.publish(b"x" * size, "", "sizes.nowhere")
    after = scrape(broker)
    ends = ("100.0", "1000.0", "10000.0", "100000.0", "1e+06", "1e+07", "5e+07", "1e+08", "+Inf")
    name = "rabbitmq_message_size_bytes_bucket"
    grown = {
        dict(labels)["le"]: after.samples[(one, labels)] - before.samples[(one, labels)]
        for one, labels in after.samples
        if one == name
    }
    assert grown == dict(zip(ends, (1, 3, 3, 4, 5, 5, 5, 5, 5), strict=True))
    total = "rabbitmq_message_size_bytes_sum"
    assert after.value(total) - before.value(total) == 100 + 101 + 1000 + 10_001 + 100_001


def test_each_thing_that_happens_is_counted(broker: BrokerProcess) -> None:
    before = scrape(broker)
    traffic(broker, "each")
    after = scrape(broker)

    def grown(name: str, **labels: str) -> float:
        full = f"rabbitmq_{name}_total"
        return after.value(full, **labels) - before.value(full, **labels)

    classic = {"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}
    assert grown("global_messages_received") == 7
    assert grown("global_messages_received_confirm") == 5
    assert grown("global_messages_confirmed") == 5
    assert grown("global_messages_routed") == 5
    assert grown("global_messages_unroutable_dropped") == 1
    assert grown("global_messages_unroutable_returned") == 1
    assert grown("global_messages_get_empty", **classic) == 1
    assert grown("global_messages_delivered_get_auto_ack", **classic) == 1
    assert grown("global_messages_delivered_get_manual_ack", **classic) == 2
    assert grown("global_messages_acknowledged", **classic) == 1
    consumed = grown("global_messages_delivered_consume_manual_ack", **classic)
    assert consumed >= 1
    assert grown("global_messages_delivered", **classic) == 3 + consumed
    assert grown("global_messages_delivered", queue_type="rabbit_stream_queue") == 0
    # What its consumer had besides comes back to the queue when the consumer ends its channel.
    assert grown("global_messages_redelivered", **classic) >= 1
    for of in ("channel", "queue"):
        assert grown(f"{of}_get") == 1
        assert grown(f"{of}_get_ack") == 2
        assert grown(f"{of}_get_empty") == 1
        assert grown(f"{of}_messages_delivered_ack") == consumed
        assert grown(f"{of}_messages_delivered") == 0
        assert grown(f"{of}_messages_redelivered") >= 1
        assert grown(f"{of}_messages_acked") == 1
    for of in ("channel", "exchange"):
        assert grown(f"{of}_messages_published") == 7
        assert grown(f"{of}_messages_confirmed") == 5
        assert grown(f"{of}_messages_unroutable_dropped") == 1
        assert grown(f"{of}_messages_unroutable_returned") == 1
    assert grown("queue_messages_published") == grown("queue_exchange_messages_published") == 5
    dead = {"queue_type": "rabbit_classic_queue", "dead_letter_strategy": "disabled"}
    assert grown("global_messages_dead_lettered_rejected", **dead) == 1
    assert grown("queues_created") == grown("queues_declared") == 2
    assert grown("connections_opened") == grown("connections_closed") == 1
    assert grown("channels_opened") == grown("channels_closed") == 2
    assert grown("auth_attempts_succeeded", protocol="amqp091") == 1
    assert grown("connection_incoming_bytes") > 20_000


def test_totals_never_fall_when_what_they_count_goes(broker: BrokerProcess, api: Api) -> None:
    assert api.change("PUT", "/api/vhosts/going", {}) == 201
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.change("PUT", "/api/permissions/going/guest", rights) == 201
    traffic(broker, "fall")
    seen = scrape(broker)

    def check() -> Metrics:
        nonlocal seen
        now = scrape(broker)
        less = {
            key: (value, now.samples.get(key))
            for key, value in counters(seen).items()
            if now.samples.get(key, -1) < value
        }
        assert not less
        seen = now
        return now

    with connect(broker.uri) as connection:
        channel = connection.channel()
        for name in ("fall.a", "fall.b"):
            channel.queue_delete(name)
            check()
        channel.confirm_select()
        channel.queue_declare("fall.c", exclusive=True)
        channel.publish(b"x", "", "fall.c")
        channel.close()
        check()
    check()
    with connect(broker.uri.replace("%2F", "going")) as connection:
        channel = connection.channel()
        channel.queue_declare("fall.d")
        channel.publish(b"x", "", "fall.d")
        assert channel.get("fall.d", no_ack=True) is not None
    check()
    assert api.change("DELETE", "/api/vhosts/going") == 204
    check()


def test_names_that_clients_chose_stay_text(broker: BrokerProcess) -> None:
    name = 'evil"} 1\\n{x="é # HELP'
    with connect(broker.uri) as connection:
        connection.channel().queue_declare(name)
        for path in ("/metrics/per-object", "/metrics/detailed?family=queue_coarse_metrics"):
            status, text, _ = ask(metrics_port(broker), path)
            assert status == 200
            found = Metrics(text)
            own = [dict(labels) for _, labels in found.samples if dict(labels).get("queue") == name]
            assert own
            assert all("/" in (row.get("vhost"), row.get("queue_vhost")) for row in own)
            known = ("rabbitmq", "leveret", "process_start_time_seconds")
            assert not {one for one in found.names if not one.startswith(known)}
        connection.channel().queue_delete(name)


def test_each_object_has_its_entry(broker: BrokerProcess) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare("entry")
        channel.publish(b"12345", "", "entry")
        channel.qos(7)
        channel.consume("entry", no_ack=False)
        found = scrape(broker, "/metrics/per-object")
        queue = {"vhost": "/", "queue": "entry"}
        assert found.value("rabbitmq_queue_messages", **queue) == 1
        assert found.value("rabbitmq_queue_consumers", **queue) == 1
        assert found.value("rabbitmq_queue_messages_delivered_ack_total", **queue) == 1
        assert found.value("rabbitmq_queue_exchange_messages_published_total", **queue) == 1
        assert found.value("rabbitmq_queue_info", queue_type="rabbit_classic_queue", **queue) == 1
        published = "rabbitmq_queue_messages_published_total"
        assert found.value(published, queue_vhost="/", queue="entry") == 1
        assert found.labels[published] == {"queue_vhost", "queue"}
        # Alerts on these have one answer, whichever path Prometheus asks.
        assert found.labels["rabbitmq_channel_messages_unroutable_dropped_total"] == set()
        assert found.labels["rabbitmq_connection_channels"] == {"connection"}
        assert found.labels["rabbitmq_channel_consumers"] == {"channel"}
        assert found.value("rabbitmq_consumer_prefetch") >= 7
        assert found.value("leveret_metrics_objects_omitted") == 0
        assert found.value("rabbitmq_identity_info", rabbitmq_endpoint="per-object") == 1
        # What is there once is there too.
        assert found.value("rabbitmq_global_messages_received_total") >= 1
        channel.queue_delete("entry")


def test_families_and_vhosts_are_chosen(broker: BrokerProcess, api: Api) -> None:
    assert api.change("PUT", "/api/vhosts/other", {}) == 201
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert api.change("PUT", "/api/permissions/other/guest", rights) == 201
    for vhost in ("%2F", "other"):
        with connect(broker.uri.replace("%2F", vhost)) as connection:
            connection.channel().queue_declare("chosen")
    path = "/metrics/detailed?family=queue_coarse_metrics&family=no_such&vhost=other"
    status, text, _ = ask(metrics_port(broker), path)
    found = Metrics(text)
    assert status == 200
    assert found.names == {
        "rabbitmq_identity_info",
        "rabbitmq_detailed_queue_messages_ready",
        "rabbitmq_detailed_queue_messages_unacked",
        "rabbitmq_detailed_queue_messages",
        "rabbitmq_detailed_queue_info",
        "leveret_metrics_objects_omitted",
    }
    vhosts = {
        dict(labels)["vhost"]
        for name, labels in found.samples
        if name == "rabbitmq_detailed_queue_messages"
    }
    assert vhosts == {"other"}
    consumers = scrape(broker, "/metrics/detailed", family="queue_consumer_count")
    assert "rabbitmq_detailed_queue_consumers" in consumers.names
    for family, series in table.SUMS.items():
        answer = scrape(broker, "/metrics/detailed", family=family)
        known = {one.full_name("rabbitmq_detailed_") for one in series.values()}
        assert answer.names == known | {"rabbitmq_identity_info"}
    assert api.change("DELETE", "/api/vhosts/other") == 204


def test_the_lag_of_readers_of_streams_is_told(broker: BrokerProcess, api: Api) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare("lagging", durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_select()
        for _ in range(5):
            channel.publish(b"x", "", "lagging")
        path = "/api/streams/%2F/lagging/consumers/spark"
        assert api.change("PUT", path, {"offset": 2}) == 201
        found = scrape(broker, "/metrics/per-object")
        reader = {"vhost": "/", "stream": "lagging", "consumer": "spark"}
        assert found.value("leveret_stream_consumer_offset", **reader) == 2
        assert found.value("leveret_stream_consumer_lag", **reader) == 3
        assert scrape(broker).value("leveret_stream_lag_messages_max") == 3
        channel.queue_delete("lagging")


def test_the_prefix_is_changed_by_who_asks(broker: BrokerProcess) -> None:
    found = scrape(broker, prefix="lavinmq")
    assert "lavinmq_queues" in found.names
    assert "leveret_steps_total" in found.names
    assert not [name for name in found.names if name.startswith("rabbitmq")]
    assert ask(metrics_port(broker), "/metrics?prefix=a-b")[0] == 400


def test_memory_is_told_by_what_takes_it(broker: BrokerProcess) -> None:
    found = scrape(broker, "/metrics/memory-breakdown")
    assert found.value("leveret_memory_bytes", kind="definitions") > 0
    assert found.value("rabbitmq_memory_classic_metadata_store_bytes") > 0


def test_what_is_emitted_is_in_the_table_and_all_of_it_is_emitted(broker: BrokerProcess) -> None:
    traffic(broker, "table")
    found = scrape(broker)
    known = {one.full_name("rabbitmq_") for one in table.AGGREGATED.values()}
    stems = {name.removesuffix("_total") for name in known}
    assert {name.removesuffix("_total") for name in found.types} == stems


def test_the_port_of_the_api_asks_for_a_login_and_a_tag(broker: BrokerProcess, api: Api) -> None:
    port = http_port(broker)
    assert ask(port, "/metrics")[0] == 401
    for name, tags in (("nobody", ""), ("watcher", "monitoring")):
        assert api.change("PUT", f"/api/users/{name}", {"password": "p", "tags": tags}) == 201
    with HttpUser(port, "nobody", "p") as user:
        assert user.get("/metrics")[0] == 401
    with HttpUser(port, "watcher", "p") as user:
        status, headers, body = user.get("/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert Metrics(body.decode()).value("rabbitmq_auth_attempts_succeeded_total", protocol="http")
    for name in ("nobody", "watcher"):
        assert api.change("DELETE", f"/api/users/{name}") == 204


def test_the_port_for_prometheus_has_nothing_else(broker: BrokerProcess) -> None:
    port = metrics_port(broker)
    for path in ("/", "/api/overview", "/api/streams/%2F", "/metrics/none"):
        assert ask(port, path)[0] == 404


def test_metrics_can_be_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    settings = {"metrics": "false"}
    with BrokerProcess(tmp_path_factory.mktemp("data"), settings=settings) as broker:
        assert "Prometheus" not in broker.output
        api = Api(broker.data_dir / "management.sock")
        assert api.answer("/metrics")[0] == 404
        api.close()


def test_the_page_has_every_series_with_its_type_and_labels() -> None:
    found = {
        (row[0], row[1], tuple(re.findall(r"`(\w+)`", row[2])))
        for row in re.findall(
            r"^\| `((?:rabbitmq|leveret|process)_\w+)` \| (\w+) \| (.*?) \|", PAGE, re.MULTILINE
        )
    }
    kinds = {table.UNTYPED: "untyped"}
    assert found == {
        (one.full_name("rabbitmq_"), kinds.get(one.kind, one.kind), one.labels)
        for one in table.EVERY.values()
    }
