// Texts for numbers, sizes, rates, times and names.  Times are in milliseconds, shown in the reader's zone.

const GROUPED = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** The text for a missing value. */
export const NOTHING = "–";

const known = (value) => value !== null && value !== undefined && Number.isFinite(Number(value));

/** Return a number with thousands separators; a fraction keeps one digit below 100. */
export function number(value) {
  if (!known(value)) {
    return NOTHING;
  }
  const count = Number(value);
  return Number.isInteger(count) || Math.abs(count) >= 100 ? GROUPED.format(count) : TENTHS.format(count);
}

/** Return a count with its noun, in the plural unless it is 1: `counted(2, "queue")` is "2 queues". */
export function counted(count, word, plural = `${word}s`) {
  return `${number(count)} ${count === 1 ? word : plural}`;
}

/** Return a number of bytes with a suitable unit. */
export function bytes(value) {
  if (!known(value)) {
    return NOTHING;
  }
  let count = Number(value);
  if (Math.abs(count) < 1024) {
    return `${GROUPED.format(count)} B`;
  }
  for (const unit of ["KiB", "MiB", "GiB"]) {
    count /= 1024;
    if (Math.abs(count) < 1023.95) {
      return `${TENTHS.format(count)} ${unit}`;
    }
  }
  return `${TENTHS.format(count / 1024)} TiB`;
}

/** Return the rate of the `…_details` of a row, or null if the broker does not know it yet. */
export const rateKnown = (row, details) => (row.rates_known === false ? null : details?.rate);

/** Return a rate per second. */
export function rate(value) {
  return known(value) ? `${number(Number(value))}/s` : NOTHING;
}

/** Return a span of milliseconds in its two largest units. */
export function duration(value) {
  if (!known(value)) {
    return NOTHING;
  }
  const ms = Number(value);
  if (ms < 1000) {
    return `${number(ms)} ms`;
  }
  if (ms < 59_950) {
    return `${TENTHS.format(ms / 1000)} s`;
  }
  const seconds = Math.round(ms / 1000);
  const parts = [
    [Math.floor(seconds / 86_400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  const shown = parts.slice(first, first + 2).filter(([count]) => count > 0);
  return shown.map(([count, unit]) => `${GROUPED.format(count)} ${unit}`).join(" ");
}

const two = (count) => String(count).padStart(2, "0");

/** Return a time (milliseconds, a Date or ISO 8601) to the second, in the reader's zone. */
export function moment(value) {
  if (value === null || value === undefined || value === "") {
    return NOTHING;
  }
  const at = value instanceof Date ? value : new Date(value);
  if (Number.isNaN(at.getTime())) {
    return NOTHING;
  }
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return `${day} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** Return the name of the reader's zone. */
export function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone ?? "local time";
}

/** Return how many times as large as another an amount is. */
export function ratio(amount, other) {
  return known(amount) && known(other) && Number(other) !== 0 ? `${TENTHS.format(amount / other)} : 1` : NOTHING;
}

/** Return a part of a whole in percent. */
export function percent(part, whole) {
  if (!known(part) || !known(whole) || Number(whole) === 0) {
    return NOTHING;
  }
  const share = (100 * part) / whole;
  if (share > 0 && share < 0.1) {
    return "< 0.1 %";
  }
  return `${share < 10 && share > 0 ? TENTHS.format(share) : GROUPED.format(share)} %`;
}

/** Invisible characters, and those that turn the direction of the text around them. */
const INVISIBLE = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/gu;

/** Return a text in which invisible characters are replaced by their codes. */
export function coded(text) {
  return String(text).replace(INVISIBLE, (char) => {
    return `⟨U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
}

/** Return a name in the same way, with spaces at its ends marked as well. */
export function legible(text) {
  return coded(text).replace(/^ +| +$/g, (spaces) => "␣".repeat(spaces.length));
}
