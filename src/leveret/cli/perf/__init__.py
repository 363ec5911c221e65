"""`leveret perf`: put a load on any AMQP 0-9-1 broker and print its rates."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import typer

from leveret.cli import exits, options
from leveret.cli.helping.commands import single
from leveret.cli.perf import flags
from leveret.cli.printing import output
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX, SHORT_STRING_BYTES_MAX

if TYPE_CHECKING:
    from leveret.cli.perf.plan import LoadPlan as Plan
    from leveret.cli.perf.run import LoadTotals as Totals

_FLAGS: Final = ("persistent", "mandatory")


def perf(
    uri: flags.Uri = options.DEFAULT_URI,
    producers: flags.Producers = 1,
    consumers: flags.Consumers = 1,
    size: flags.Size = 16,
    confirm: flags.Confirm = 0,
    autoack: flags.Autoack = False,
    multi_ack_every: flags.MultiAckEvery = 1,
    qos: flags.Qos = 0,
    flag: flags.Flag = None,
    predeclared: flags.Predeclared = False,
    time: flags.Seconds = 0.0,
    pmessages: flags.Pmessages = 0,
    cmessages: flags.Cmessages = 0,
    rate: flags.Rate = 0.0,
    consumer_rate: flags.ConsumerRate = 0.0,
    queue: flags.Queue = "leveret.perf",
    queue_argument: flags.QueueArgument = None,
    latency: flags.Latency = False,
    json: flags.Json = False,
) -> None:
    r"""Put a load on an AMQP broker and print its rates.

    Without a limit (-z, -C, -D) it runs until SIGINT. The queue is declared durable and deleted
    at the end, unless -p says that it already exists and must stay.

    These print the headline figures of the README, for 16-byte messages:

    \b
      auto-ack          leveret perf -a -z 10
      confirmed         leveret perf -c 1000 -q 1000 -A 100 -z 10
      synced to disk    leveret perf -c 1000 -q 1000 -A 100 -f persistent -z 10
    """
    from leveret.cli.perf.plan import LoadPlan as Plan

    plan = Plan(
        parameters=options.read_uri(uri),
        queue=queue,
        producers=producers,
        consumers=consumers,
        size=size,
        window=confirm,
        ack_every=0 if autoack else multi_ack_every,
        prefetch=qos,
        persistent="persistent" in (flag or ()),
        mandatory="mandatory" in (flag or ()),
        predeclared=predeclared,
        seconds=time,
        producer_messages=pmessages,
        consumer_messages=cmessages,
        rate=rate,
        consumer_rate=consumer_rate,
        latency=latency,
        arguments=options.read_pairs(queue_argument or [], "--queue-argument"),
    )
    _check(plan, flag or [])
    _run(plan, json)


def _check(plan: Plan, flag: list[str]) -> None:
    """Check the values of the options.  Raises: Failure."""
    for name in flag:
        if name not in _FLAGS:
            raise exits.Failure(f"-f takes persistent or mandatory, not {name!r}", exits.USAGE)
    for option, number in (("-z", plan.seconds), ("-r", plan.rate), ("-R", plan.consumer_rate)):
        if not math.isfinite(number):
            raise exits.Failure(f"{option} takes a number, not {number}", exits.USAGE)
    if plan.size > CLIENT_MESSAGE_BYTES_MAX:
        text = f"-s: a message has at most {CLIENT_MESSAGE_BYTES_MAX} bytes"
        raise exits.Failure(text, exits.USAGE)
    if len(plan.queue.encode()) > SHORT_STRING_BYTES_MAX:
        text = f"-u: the name of a queue has at most {SHORT_STRING_BYTES_MAX} bytes"
        raise exits.Failure(text, exits.USAGE)
    if 0 < plan.prefetch < plan.ack_every:
        raise exits.Failure("-q is less than -A: a consumer would wait for ever", exits.USAGE)
    if not plan.producers and not plan.consumers:
        raise exits.Failure("-x 0 and -y 0: there is nothing to do", exits.USAGE)


def _run(plan: Plan, json: bool) -> None:
    """Run the load and print its results."""
    from leveret.cli.perf import report
    from leveret.cli.perf.run import Load

    def each_second(last: Totals, now: Totals) -> None:
        if not json:
            output.say(report.rates(last, now))

    result = Load(plan, each_second).run()
    if json:
        output.say_json(report.as_json(result))
        return
    for line in report.summary(result):
        output.say(line)


def app() -> typer.Typer:
    """Return the command."""
    return single("perf", perf)
