"""The pytest plugin, in runs of pytest of its own: alone, under xdist, with and without anyio."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.commands

PAGE = Path(__file__).parents[2] / "docs/how-to/testing.md"

#: What the plugins of this project's own runs would do to the runs here.
QUIET = ("-p", "no:cacheprovider", "-p", "no:random_order")

ASYNCIO = """
import pytest

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""


def blocks() -> list[str]:
    """Return the examples of the page."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_examples_of_the_page_work(pytester: pytest.Pytester) -> None:
    """Each is a file of its own: a program is run as a test, asynchronous tests by anyio."""
    pytester.makeconftest(ASYNCIO)
    found = blocks()
    count = 0
    for number, block in enumerate(found):
        text = block
        if "def test_" in text:
            count += text.count("def test_")
        elif "@pytest.fixture" in text:
            names = re.findall(r"def (\w+)", block)
            text += f"\n\ndef test_it(request):\n    for name in {names}:\n"
            text += "        request.getfixturevalue(name)\n"
            count += 1
        else:
            body = "".join(f"    {line}\n" for line in block.splitlines())
            text = f"def test_it():\n{body}"
            count += 1
        marked = f"import pytest\n\n{text}\n\npytestmark = pytest.mark.anyio\n"
        pytester.makepyfile(**{f"test_example_{number}": marked})
    assert len(found) >= 8
    pytester.runpytest_subprocess(*QUIET, "-n", "2", "--timeout=120").assert_outcomes(passed=count)


def test_nothing_is_imported_before_a_test_asks_for_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys
        import threading

        def test_before():
            assert [name for name in sys.modules if name.startswith("leveret.app")] == []
            assert [name for name in sys.modules if name.startswith("leveret.client")] == []

        def test_with(leveret_server):
            assert leveret_server.is_running
            assert "leveret-broker" in [thread.name for thread in threading.enumerate()]
    """)
    pytester.runpytest_subprocess(*QUIET, "-W", "error").assert_outcomes(passed=2)


def test_each_test_has_a_vhost_of_its_own_and_each_worker_a_broker(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile("""
        import pathlib
        import pika
        import pytest

        @pytest.mark.parametrize("number", range(20))
        def test_alone(leveret, leveret_url, number):
            assert leveret_url == leveret.url
            with pika.BlockingConnection(pika.URLParameters(leveret_url)) as connection:
                channel = connection.channel()
                assert channel.queue_declare("q", durable=True).method.message_count == 0
                channel.basic_publish("", "q", b"left behind")
            pathlib.Path(f"{leveret.broker.port}-{leveret.name}").touch()
    """)
    pytester.runpytest_subprocess(*QUIET, "-n", "2").assert_outcomes(passed=20)
    files = [path.name.partition("-") for path in pytester.path.glob("*-test-*")]
    assert len({port for port, _, _ in files}) == 2
    assert len({name for _, _, name in files}) == 20


def test_what_a_test_did_to_the_broker_ends_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pika
        import pytest

        def use(url):
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("q", durable=True)
                channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))

        def faults(broker):
            yield broker.kill
            yield broker.stop
            yield broker.block
            yield broker.fill_disk
            yield lambda: broker.delay(3600)
            yield lambda: broker.nack_next(1000)
            yield lambda: broker.refuse_next(count=1000)
            yield lambda: broker.refuse_next("channel.open", count=1000, code=504)

        @pytest.mark.parametrize("number", range(8))
        def test_fault(leveret, number):
            use(leveret.url)
            list(faults(leveret.broker))[number]()

        def test_last(leveret):
            use(leveret.url)
    """)
    pytester.runpytest_subprocess(*QUIET, "--timeout=60").assert_outcomes(passed=9)


def test_a_connection_that_a_test_lost_does_not_fail_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_dropped(leveret, leveret_connection):
            leveret.broker.drop_connections()

        def test_killed(leveret, leveret_connection):
            leveret.broker.kill()

        def test_used(leveret_connection):
            channel = leveret_connection.channel()
            channel.queue_declare("q")
            channel.publish(b"x", routing_key="q")
            assert channel.get("q", no_ack=True).body == b"x"
    """)
    pytester.runpytest_subprocess(*QUIET, "--timeout=60").assert_outcomes(passed=3)


def test_a_conftest_may_set_settings(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        import pytest

        @pytest.fixture(scope="session")
        def leveret_settings():
            return {"default_user": "me", "default_pass": "secret", "http": True}
    """)
    pytester.makepyfile("""
        import pika

        def test_url(leveret):
            assert leveret.url.startswith("amqp://me:secret@127.0.0.1:")
            pika.BlockingConnection(pika.URLParameters(leveret.url)).close()
    """)
    pytester.runpytest_subprocess(*QUIET).assert_outcomes(passed=1)


def test_an_interrupt_ends_the_broker_and_the_run(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        def test_interrupted(leveret):
            raise KeyboardInterrupt
    """)
    result = pytester.runpytest_subprocess(*QUIET, timeout=60)
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_a_worker_that_is_killed_takes_its_broker_along(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import os
        import signal

        def test_killed(leveret):
            os.kill(os.getpid(), signal.SIGKILL)

        def test_other(leveret):
            assert leveret.broker.is_running

        def test_another(leveret):
            assert leveret.broker.is_running
    """)
    result = pytester.runpytest_subprocess(*QUIET, "-n", "1", timeout=120)
    result.assert_outcomes(passed=2, failed=1)


def test_the_brokers_log_is_shown_with_a_failed_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import pika

        def test_fails(leveret):
            with pika.BlockingConnection(pika.URLParameters(leveret.url)) as connection:
                try:
                    connection.channel().queue_declare("nowhere", passive=True)
                except pika.exceptions.ChannelClosedByBroker:
                    pass
            raise AssertionError
    """)
    result = pytester.runpytest_subprocess(*QUIET)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"ERROR +leveret\.broker:.*no queue 'nowhere'.*"])
