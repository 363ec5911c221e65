"""Reports of a load: a line per second, a summary, or one JSON object."""

from __future__ import annotations

from leveret.cli.perf.run import LoadTotals, Result
from leveret.wire.content.scan import Latencies

#: The reported quantiles, by name.
QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}


def _moved(totals: LoadTotals) -> tuple[str, ...]:
    """Return the names of the counts to print; `confirmed` only if publishes were confirmed."""
    if totals.confirmed or totals.nacked:
        return ("published", "confirmed", "delivered")
    return ("published", "delivered")


def rates(last: LoadTotals, now: LoadTotals) -> str:
    """Return a line with the rates between two totals."""
    seconds = now.seconds - last.seconds
    parts = [f"{now.seconds:6.1f} s"]
    for name in _moved(now):
        count = getattr(now, name) - getattr(last, name)
        parts.append(f"{name} {count / seconds:>11,.0f}/s")
    if now.nacked > last.nacked or now.returned > last.returned:
        parts.append(f"nacked {now.nacked:,}, returned {now.returned:,}")
    return "  ".join(parts)


def summary(result: Result) -> list[str]:
    """Return the lines of the summary."""
    totals = result.totals
    lines = [f"ran {totals.seconds:.2f} s against {broker_of(result)}"]
    for name in _moved(totals):
        count = getattr(totals, name)
        lines.append(f"{name} {count:,} messages, {count / totals.seconds:,.0f}/s")
    mib = totals.delivered_bytes / 2**20
    lines[-1] += f", {mib / totals.seconds:,.1f} MiB/s of bodies"
    if totals.nacked or totals.returned:
        lines.append(f"nacked {totals.nacked:,}, returned {totals.returned:,}")
    if result.latencies is not None:
        shown = latencies_of(result.latencies)
        lines.append("latency " + ", ".join(f"{name} {us:,.0f} µs" for name, us in shown.items()))
    return lines


def as_json(result: Result) -> dict[str, object]:
    """Return a load's figures as one JSON object; latencies in microseconds."""
    totals = result.totals
    found: dict[str, object] = {"broker": broker_of(result), "seconds": round(totals.seconds, 3)}
    for name in ("published", "confirmed", "delivered"):
        count = getattr(totals, name)
        found[name] = count
        found[f"{name}_per_second"] = round(count / totals.seconds, 1)
    found["delivered_bytes"] = totals.delivered_bytes
    found["nacked"] = totals.nacked
    found["returned"] = totals.returned
    if result.latencies is not None:
        found["latency_us"] = latencies_of(result.latencies)
    return found


def broker_of(result: Result) -> str:
    """Return the broker's name, version and platform from its server properties."""
    product = [result.server_properties.get(name) for name in ("product", "version", "platform")]
    return " ".join(str(part) for part in product if part)


def latencies_of(latencies: Latencies) -> dict[str, float]:
    """Return the reported latencies, in microseconds."""
    found = {"min": latencies.least / 1000}
    for name, share in QUANTILES.items():
        found[name] = latencies.quantile(share) / 1000
    return found | {"max": latencies.most / 1000}
