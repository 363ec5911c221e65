// Plots over time on uPlot: lines and stacked bars with the values under the pointer, and sparklines.

import { html, useEffect, useLayoutEffect, useRef, useState } from "../vendor/htm-preact.js";
import uPlot from "../vendor/uPlot.js";
import { bytes, moment, number, rate } from "./format.js";

/** The number of colours: `--plot-1` and so on in `style.css`. */
const PLOT_COLOURS = 8;

const WHOLE_STEPS = Array.from({ length: 16 }, (_, power) => [1, 2, 5].map((digit) => digit * 10 ** power)).flat();
const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);

/** Steps between the marks of an axis, so that no mark of whole values is a fraction. */
const MARK_STEPS = new Map([[number, WHOLE_STEPS], [rate, WHOLE_STEPS], [bytes, BINARY_STEPS]]);

/** The minimum time range of a plot in seconds. */
const SECONDS_LEAST = 10;

/** The labels of times on the axis: by the step between them, with the parts that changed below. */
const TIMES = [
  [31_536_000, "{YYYY}", null, null, null, null, null, null, 1],
  [2_419_200, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
  [86_400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, "\n{YYYY}-{MM}-{DD}", null, null, null, 1],
  [0.001, "{ss}.{fff}", "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{YYYY}-{MM}-{DD} {HH}:{mm}", null, "\n{HH}:{mm}", null, 1],
];

/** Strokes and gaps of a dashed line in pixels. */
const DASH = [8, 8];

function cssValue(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Return the colour of a series by its index. */
export function plotColour(place) {
  return cssValue(`--plot-${(place % PLOT_COLOURS) + 1}`);
}

/** Return a number that changes with the theme, because a canvas does not follow style sheets. */
function useTheme() {
  const [changes, setChanges] = useState(0);
  useEffect(() => {
    const changed = () => setChanges((before) => before + 1);
    const watcher = new MutationObserver(changed);
    watcher.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    const asked = ["(prefers-color-scheme: dark)", "print"].map((query) => matchMedia(query));
    asked.forEach((one) => one.addEventListener("change", changed));
    return () => {
      watcher.disconnect();
      asked.forEach((one) => one.removeEventListener("change", changed));
    };
  }, []);
  return changes;
}

function axesOf(format) {
  const common = {
    stroke: cssValue("--soft-text"),
    grid: { stroke: cssValue("--line"), width: 1 },
    ticks: { stroke: cssValue("--line"), width: 1, size: 4 },
    font: `11px ${cssValue("--font")}`,
  };
  const size = (plot, values) => 18 + 6.4 * Math.max(3, ...(values ?? []).map((text) => text.length));
  return [
    { ...common, space: 90, size: 44, values: TIMES },
    { ...common, incrs: MARK_STEPS.get(format), values: (plot, splits) => splits.map((value) => (value === null ? "" : format(value))), size, space: 36 },
  ];
}

/** The range of values begins at 0 and is never empty. */
const upwards = (plot, least, most) => [Math.min(0, least ?? 0), most > 0 ? most * 1.08 : 1];

/** The range of times is never too short to show a single sample, or none. */
const lately = (plot, first, last) => {
  // For a single sample uPlot would show three years.
  const end = plot.data[0].length > 1 ? last : (plot.data[0][0] ?? Date.now() / 1000);
  return [Math.min(first ?? end, end - SECONDS_LEAST), end];
};

function optionsOf({ series, height, width, format, drawn, onZoom, raw, span, barAt, quiet }) {
  // Without a pointer, the last values are shown; a quiet plot has its only one in the title.
  const told = (at, silent) => at ?? (silent ? null : (raw()[0]?.length ?? 0) - 1);
  const shown = (one, place) => (plot, value, seriesPlace, at) => {
    const point = told(at, quiet && series.length === 1);
    const found = raw()[place + 1]?.[point];
    return point === null ? "" : found === null || found === undefined ? "–" : format(found);
  };
  return {
    width,
    height,
    cursor: { drag: { x: true, y: false, dist: 6 }, points: { size: 7 }, ...(barAt && { dataIdx: barAt }) },
    legend: { live: true },
    scales: { x: { time: true, range: span ?? lately }, y: { range: upwards } },
    axes: axesOf(format),
    series: [
      { label: "Time", value: (plot, value, seriesPlace, at) => (told(at, quiet) === null ? "" : moment(raw()[0]?.[told(at)] * 1000)) },
      ...series.map((one, place) => ({ label: one.label, value: shown(one, place), ...drawn(place) })),
    ],
    hooks: {
      setSelect: [(plot) => plot.select.width > 0 && onZoom(true)],
    },
  };
}

/** Keep a plot in an element: recreated for another shape or theme, and updated with new data. */
function usePlot({ title, series, data, height, format, drawn, made, span, barAt, quiet }) {
  const place = useRef(null);
  const plot = useRef(null);
  const raw = useRef(data);
  const zoom = useRef(false);
  const [zoomed, setZoomed] = useState(false);
  const theme = useTheme();
  raw.current = data;
  const onZoom = (now) => {
    zoom.current = now;
    setZoomed(now);
  };
  const shape = JSON.stringify([title, series.map((one) => one.label), height]);
  useLayoutEffect(() => {
    const element = place.current;
    const width = () => Math.max(200, Math.floor(element.clientWidth));
    const options = optionsOf({ series, height, width: width(), format, drawn, onZoom, raw: () => raw.current, span, barAt, quiet });
    plot.current = new uPlot(options, made(raw.current), element);
    plot.current.over.addEventListener("dblclick", () => onZoom(false));
    const watcher = new ResizeObserver(() => {
      if (plot.current && plot.current.width !== width()) {
        plot.current.setSize({ width: width(), height });
      }
    });
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      plot.current.destroy();
      plot.current = null;
      onZoom(false);
    };
  }, [shape, theme]);
  useLayoutEffect(() => {
    plot.current?.setData(made(data), !zoom.current);
    plot.current?.setLegend(null, false);
    if (zoom.current) {
      plot.current?.redraw();
    }
  }, [data]);
  const whole = () => {
    onZoom(false);
    plot.current?.setData(made(raw.current), true);
  };
  return { place, zoomed, whole };
}

/** Return the indices of values without a line to them, which only a point can show; null for none. */
function lonePlaces(plot, series) {
  const values = plot.data[series] ?? [];
  const known = (at) => values[at] !== null && values[at] !== undefined;
  const lone = [];
  values.forEach((value, at) => known(at) && !known(at - 1) && !known(at + 1) && lone.push(at));
  return lone.length > 0 ? lone : null;
}

/** Return whether any series has a value. */
const hasValues = (data) => data.slice(1).some((values) => values.some((value) => value !== null && value !== undefined));

/** Return whether there are lines to see: two times at least, and a value other than 0. */
const hasHeights = (data) => data[0].length > 1 && data.slice(1).some((values) => values.some(Boolean));

function PlotFrame({ title, note, now, data, place, zoomed, whole, stacked: inStacks, quiet, nothing = "No values yet." }) {
  const isFlat = quiet && !hasHeights(data);
  return html`<figure class=${`plot${inStacks ? " stacked" : ""}${quiet ? " quiet" : ""}${isFlat ? " flat" : ""}`} aria-label=${title}>
    <figcaption>${title}${note && html` <span class="note">${note}</span>`}
      ${now && html`<span class="plot-now">${now}</span>`}
      ${zoomed && html`<button type="button" class="small" onClick=${whole}>Show all</button>`}
    </figcaption>
    <div class="plot-place" ref=${place}></div>
    ${(isFlat || !hasValues(data)) && html`<p class="note nothing">${nothing}</p>`}
  </figure>`;
}

/**
 * Draw lines over time.  `data` is `[seconds, …values]`; a series is `{label, unit, dashed}`, where a dashed
 * line leaves the one below it visible; `format` formats a value.  `now` is the present value.  A `quiet` plot
 * shows a time only under the pointer, and the text `nothing` instead of lines that are all 0.
 */
export function LinePlot({ title, note, now, series, data, height = 220, format = number, quiet = false, nothing }) {
  const drawn = (place) => {
    const colour = plotColour(place);
    const points = { show: false, size: 6, fill: colour, filter: lonePlaces };
    const dash = series[place].dashed ? DASH : undefined;
    return { stroke: colour, width: 1.75, dash, fill: series.length === 1 ? `${colour}22` : undefined, points };
  };
  const frame = usePlot({ title, series, data, height, format, drawn, made: (given) => given, quiet });
  return html`<${PlotFrame} title=${title} note=${note} now=${now} data=${data} quiet=${quiet} nothing=${nothing} ...${frame} />`;
}

/** Return each series on top of those before it. */
function stacked(data) {
  const sums = [];
  const made = data.slice(1).map((values) =>
    values.map((value, at) => {
      sums[at] = (sums[at] ?? 0) + (value ?? 0);
      return sums[at];
    }),
  );
  return [data[0], ...made];
}

/** Windows that a plot of bars has room for at least, so that a single bar is not as wide as the plot. */
const WINDOWS_LEAST = 12;

/** The gap between bars in pixels of the canvas, if they are wide enough for one. */
const BAR_GAP = 1;

/** Return how to draw bars from their starts, each as wide as `step` seconds. */
const windowBars = (step) => (plot, series, first, last) => {
  const fill = new Path2D();
  const ground = plot.valToPos(0, "y", true);
  for (let at = first; at <= last; at += 1) {
    const start = plot.data[0][at];
    const value = plot.data[series][at];
    if (value) {
      const [left, right] = [start, start + step].map((time) => Math.round(plot.valToPos(time, "x", true)));
      const top = Math.round(plot.valToPos(value, "y", true));
      const gap = right - left > 4 * BAR_GAP ? BAR_GAP : 0;
      fill.rect(left, top, Math.max(1, right - left - gap), ground - top);
    }
  }
  return { fill, stroke: null, clip: null, band: null, gaps: null, flags: 1 };
};

/** Return the range of times that shows all bars, in the middle if there are only a few. */
function barSpan(starts, step) {
  const [first, end] = starts.length > 0 ? [starts[0], starts[starts.length - 1] + step] : [0, step];
  const spare = Math.ceil(Math.max(0, WINDOWS_LEAST - (end - first) / step) / 2) * step;
  return [first - spare, end + spare];
}

/** Draw stacked bars over time, each `step` seconds wide.  Other properties are those of `LinePlot`. */
export function BarPlot({ title, note, series, data, height = 240, format = number, step = 60 }) {
  const paths = windowBars(step);
  const drawn = (place) => {
    const colour = plotColour(place);
    return { stroke: colour, fill: colour, width: 0, paths, points: { show: false } };
  };
  // The first series is on top of all others and is drawn first; they are drawn over it.
  const turn = (given) => [given[0], ...given.slice(1).reverse()];
  const made = (given) => turn(stacked(turn(given)));
  // uPlot hands in the times of the first and the last bar, unless a part of the plot was chosen.
  const span = (plot, first, last) => {
    const starts = plot.data[0];
    const isWhole = starts.length === 0 || (first <= starts[0] && last >= starts[starts.length - 1]);
    return isWhole ? barSpan(starts, step) : [first, last];
  };
  // The bar under the pointer is the last one that began, not the one whose start is nearest.
  const barAt = (plot, place, nearest, time) => (nearest > 0 && plot.data[0][nearest] > time ? nearest - 1 : nearest);
  const frame = usePlot({ title, series, data, height, format, drawn, made, span, barAt });
  return html`<${PlotFrame} title=${title} note=${note} data=${data} stacked=${true} ...${frame} />`;
}

/** Draw values in one small line, without axes. */
export function Sparkline({ values, label, width = 96, height = 22 }) {
  const numbers = values.map((value) => Number(value) || 0);
  if (numbers.length < 2) {
    return html`<span class="note">–</span>`;
  }
  const most = Math.max(1, ...numbers);
  const x = (place) => ((place / (numbers.length - 1)) * (width - 2) + 1).toFixed(1);
  const y = (value) => (height - 2 - (value / most) * (height - 4)).toFixed(1);
  const line = numbers.map((value, place) => `${x(place)},${y(value)}`).join(" ");
  const says = `${label}: ${number(numbers[0])} to ${number(numbers[numbers.length - 1])}, at most ${number(Math.max(...numbers))}`;
  return html`<svg class="sparkline" role="img" aria-label=${says} viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height}>
    <title>${says}</title>
    <polygon class="spark-area" points=${`1,${height - 2} ${line} ${width - 1},${height - 2}`} />
    <polyline class="spark-line" points=${line} />
  </svg>`;
}
