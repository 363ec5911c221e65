// Histories of counts and lengths, as sampled by the HTTP API, as lines of a plot.

/** The time range of a plot: `age` and `step` in seconds. */
export const RANGES = {
  "10m": { title: "10 minutes", age: 600, step: 5 },
  "1h": { title: "1 hour", age: 3600, step: 60 },
  "8h": { title: "8 hours", age: 28800, step: 600 },
  "24h": { title: "24 hours", age: 86400, step: 1800 },
};

/** Return the query of a request for samples. */
export function samplesOf(range) {
  const { age, step } = RANGES[range] ?? RANGES["10m"];
  return { msg_rates_age: age, msg_rates_incr: step, lengths_age: age, lengths_incr: step };
}

/** Return the query of a request for samples of a node. */
export function nodeSamplesOf(range) {
  const { age, step } = RANGES[range] ?? RANGES["10m"];
  return { node_stats_age: age, node_stats_incr: step };
}

/** Return the samples of several `…_details`, oldest first, on common times (s). */
function aligned(details) {
  const columns = details.map((one) => [...(one?.samples ?? [])].reverse());
  const longest = columns.reduce((best, one) => (one.length > best.length ? one : best), []);
  const times = longest.map((one) => one.timestamp / 1000);
  const values = columns.map((one) => {
    const missing = longest.length - one.length;
    return longest.map((_, index) => (index < missing ? null : one[index - missing].sample));
  });
  return [times, values];
}

/** Return `[times, ...values]` of lengths. */
export function lengthLines(...details) {
  const [times, values] = aligned(details);
  return [times, ...values];
}

/** Return `[times, ...rates]` of counts, per second. */
export function rateLines(...details) {
  const [times, values] = aligned(details);
  return [times, ...values.map((counts) => rates(times, counts))];
}

/**
 * Return the growth of a count per second before each time.
 *
 * The broker samples a little less often than every step, so that a step now and then repeats the
 * previous sample: the growth is then spread over both steps.
 */
export function rates(times, counts) {
  const grown = (from, to) => Math.max(0, (counts[to] - counts[from]) / (times[to] - times[from]));
  const still = (at) => at > 0 && counts[at] === counts[at - 1];
  const lone = (at) => still(at) && !still(at - 1) && !still(at + 1);
  return counts.map((count, at) => {
    if (at === 0 || count === null || counts[at - 1] === null) {
      return null;
    }
    if (lone(at)) {
      return at + 1 < counts.length ? grown(at - 1, at + 1) : grown(Math.max(0, at - 2), at);
    }
    return lone(at - 1) && counts[at - 2] !== undefined ? grown(at - 2, at) : grown(at - 1, at);
  });
}

/** Return `[times, values]`: the milliseconds that a sync took between two samples; null without a sync. */
export function latencyLine(syncs, micros) {
  const [times, [counts, taken]] = aligned([syncs, micros]);
  const mean = (at) => (counts[at] > counts[at - 1] ? (taken[at] - taken[at - 1]) / (counts[at] - counts[at - 1]) / 1000 : null);
  return [times, counts.map((_, at) => (at === 0 ? null : mean(at)))];
}
