"""`leveret pipeline`: the jobs as one types them, each in a process and a session of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.cli.contexts.kept import Context, Contexts
from leveret.cli.pipeline.running import trusted_there
from leveret.client.blocking import connect
from support.brokers.brokers import Broker
from support.brokers.secure import Pki, port_of, uri_of
from support.spark.live_stream import LiveStream


def pipeline(*arguments: str) -> subprocess.CompletedProcess[str]:
    return leveret("pipeline", *arguments)


def leveret(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")} | variables
    return subprocess.run(
        [sys.executable, "-m", "leveret", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=kept,
    )


def test_the_report_of_a_stream(broker: Broker, stream: LiveStream, tmp_path: Path) -> None:
    stream.publish_numbers(0, 120)
    page = tmp_path / "report.html"
    reported = pipeline(
        *("report", "--stream", stream.name, "--master", "local[2]"),
        *("--uri", broker.uri, "--html", str(page)),
    )
    assert (reported.returncode, reported.stderr) == (0, "")
    assert reported.stdout.splitlines()[0].startswith("120 messages, ")
    assert "120" in page.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_archive_then_report(broker: Broker, stream: LiveStream, tmp_path: Path) -> None:
    """What was archived is what was published, and the report counts the same."""
    stream.publish_numbers(0, 120)
    path = str(tmp_path / "archive")
    archived = pipeline("archive", stream.name, path, "--master", "local[2]", "--uri", broker.uri)
    assert archived.returncode == 0, archived.stderr
    assert archived.stdout.startswith("120 messages in ")
    assert archived.stdout.endswith("next offset 120\n")

    page = tmp_path / "report.html"
    reported = pipeline("report", "--path", path, "--master", "local[2]", "--html", str(page))
    assert reported.returncode == 0, reported.stderr
    assert reported.stdout.splitlines()[0].startswith("120 messages, ")
    assert "120" in page.read_text(encoding="utf-8")


def test_a_report_needs_a_source() -> None:
    """Neither a stream nor an archive: a usage error before Spark starts."""
    refused = pipeline("report")
    assert refused.returncode == 64
    assert "--stream" in refused.stderr


def test_another_broker_gets_nothing_of_a_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is shown to its own broker; files of the environment count for each."""
    here, there = "amqps://one.example", "amqps://two.example"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LEVERET_CONTEXT", raising=False)
    monkeypatch.setenv("LEVERET_CA_FILE", "/ca.pem")
    files = {"caFile": "/ca.pem"}
    assert trusted_there(there, here) == trusted_there(None, here) == files
    assert trusted_there("amqp://two.example", here) == {}
    Contexts(tmp_path / "leveret/contexts.toml", {"one": Context(uri=here)}, "one").save()
    assert trusted_there(there, here) == {}
    assert trusted_there(f"{here}/vhost", here) == files


@pytest.mark.thorough
def test_a_context_says_whom_a_job_trusts_and_who_it_is(tmp_path: Path) -> None:
    """Read by HTTPS and AMQPS, and published, where the broker knows no client without one."""
    pki = Pki(tmp_path)
    client = pki.authority.sign("client", "DNS:client")
    asking = {name: str(value) for name, value in pki.asking.items()} | {"tls_verify": "required"}
    with pki.broker_process(tmp_path / "data", **asking, http="false") as broker:
        port = port_of(broker)
        with connect(uri_of(port), ssl=pki.trusting(client)) as connection:
            channel = connection.channel()
            for name in ("from", "to"):
                channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
            channel.confirm_select()
            for number in range(7):
                channel.publish(str(number).encode(), routing_key="from")
        home = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
        # Relative to the directory of the command, which Spark's workers do not have.
        files = {
            "--ca-file": pki.authority.certificate,
            "--certificate-file": client.certificate,
            "--key-file": client.key,
        }
        said = [text for flag, path in files.items() for text in (flag, os.path.relpath(path))]
        kept = leveret("context", "set", "safe", "--uri", uri_of(port), *said, **home)
        assert kept.returncode == 0, kept.stderr
        path = str(tmp_path / "archive")
        job = ("--context", "safe", "pipeline")
        archived = leveret(*job, "archive", "from", path, "--master", "local[1]", **home)
        assert archived.returncode == 0, archived.stderr
        assert archived.stdout.startswith("7 messages in ")
        sent = leveret(
            *job, "replay", "--path", path, "--to-stream", "to", "--master", "local[1]", **home
        )
        assert sent.returncode == 0, sent.stderr
        with connect(uri_of(port), ssl=pki.trusting(client)) as connection:
            assert connection.channel().queue_declare("to", passive=True).message_count == 7
