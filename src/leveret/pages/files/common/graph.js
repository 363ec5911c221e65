// A picture of nodes and links in layers: a topology, or a flow with links as thick as their weight.

import { html, useLayoutEffect, useMemo, useRef, useState } from "../vendor/htm-preact.js";
import { counted, legible, number } from "./format.js";
import { columnsOf } from "./layers.js";
import { PAPER_WIDTH, usePrinting } from "./print.js";

const NODE_HEIGHT = 38;
const NODE_GAP = 12;
/** The widths of a node and of the gap between columns, with enough space and without; long names get more. */
const NODE_WIDTH = 190;
const NODE_WIDTH_LEAST = 148;
const NODE_WIDTH_MOST = 320;
const COLUMN_GAP = 150;
const COLUMN_GAP_LEAST = 44;
/** The gap that long names leave between columns, in which links can still be followed. */
const COLUMN_GAP_KEPT = 110;
/** A picture wider than its box is scaled down to at least this, to stay readable; then the box scrolls. */
const SCALE_LEAST = 0.72;
const LINK_MIN = 1.25;
const LINK_MAX = 14;
/** The margin of a picture on paper, in pixels. */
const FIGURE_PADDING = 34;

const EDGE = 8;

/** The sizes of names and notes in pixels, and the margin of both, as in `style.css`. */
const NAME_SIZE = 12.5;
const NOTE_SIZE = 11;
const TEXT_MARGIN = 10;

let ruler = null;

/** Return the width of a text in pixels. */
function textWidth(text, size) {
  ruler ??= document.createElement("canvas").getContext("2d");
  ruler.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

/** Return a text, cut with an ellipsis if it is wider than this. */
function fitted(text, width, size) {
  if (textWidth(text, size) <= width) {
    return text;
  }
  const letters = [...text].slice(0, Math.ceil(width));
  let [least, most] = [0, letters.length];
  while (least < most) {
    const middle = Math.ceil((least + most) / 2);
    const isFitting = textWidth(`${letters.slice(0, middle).join("")}…`, size) <= width;
    [least, most] = isFitting ? [middle, most] : [least, middle - 1];
  }
  return `${letters.slice(0, least).join("")}…`;
}

/** Return the width of a node in which its name and its note fit. */
function widthWanted(node) {
  const texts = [textWidth(legible(node.label), NAME_SIZE), textWidth(legible(node.note ?? ""), NOTE_SIZE)];
  return Math.ceil(Math.max(...texts)) + 2 * TEXT_MARGIN;
}

/** Return the width of an element, updated when it changes; 0 until it is known. */
function useWidth(element) {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!element.current) {
      return undefined;
    }
    const look = () => setWidth(Math.floor(element.current?.clientWidth ?? 0));
    look();
    const watcher = new ResizeObserver(look);
    watcher.observe(element.current);
    return () => watcher.disconnect();
  }, []);
  return width;
}

/** Return the widths of a node and of a gap with which this many columns fit into a box, if they do. */
function columnWidths(count, box, wanted) {
  const room = (node) => (box - 2 * EDGE - count * node) / Math.max(1, count - 1);
  const fits = (gap) => Math.min(COLUMN_GAP, Math.max(COLUMN_GAP_LEAST, gap));
  if (box === 0) {
    return [NODE_WIDTH, COLUMN_GAP];
  }
  const least = room(NODE_WIDTH) >= COLUMN_GAP_LEAST ? NODE_WIDTH : NODE_WIDTH_LEAST;
  const most = Math.floor((box - 2 * EDGE - (count - 1) * COLUMN_GAP_KEPT) / count);
  const node = Math.max(least, Math.min(most, NODE_WIDTH_MOST, wanted));
  return [node, fits(room(node))];
}

/** Return the position of each node, its width, and the size of the picture. */
function placedNodes(nodes, links, box) {
  const columns = columnsOf(nodes, links);
  const [nodeWidth, gap] = columnWidths(columns.length, box, Math.max(0, ...nodes.map(widthWanted)));
  const tallest = Math.max(1, ...columns.map((column) => column.length));
  const height = tallest * (NODE_HEIGHT + NODE_GAP) - NODE_GAP + 2 * EDGE;
  const width = columns.length * (nodeWidth + gap) - gap + 2 * EDGE;
  // If it scrolls sideways, the first column is visible, which then begins at the top.
  const scrolls = box > 0 && width * SCALE_LEAST > box;
  const places = new Map();
  columns.forEach((column, at) => {
    const step = NODE_HEIGHT + NODE_GAP;
    const top = scrolls ? EDGE : (height - (column.length * step - NODE_GAP)) / 2;
    column.forEach((node, place) => {
      places.set(node.id, { x: EDGE + at * (nodeWidth + gap), y: top + place * step });
    });
  });
  return { places, nodeWidth, width: Math.max(width, nodeWidth + 2 * EDGE), height };
}

/** Return the ends of each link on its nodes, so that links do not all meet in one point. */
function linkEnds(links, places) {
  const ends = new Map(links.map((link) => [link, { begin: NODE_HEIGHT / 2, end: NODE_HEIGHT / 2 }]));
  for (const [here, there, side] of [["from", "to", "begin"], ["to", "from", "end"]]) {
    const groups = new Map();
    links.forEach((link) => groups.set(link[here], [...(groups.get(link[here]) ?? []), link]));
    for (const group of groups.values()) {
      group.sort((one, other) => places.get(one[there]).y - places.get(other[there]).y);
      group.forEach((link, place) => {
        ends.get(link)[side] = 6 + ((place + 0.5) / group.length) * (NODE_HEIGHT - 12);
      });
    }
  }
  return ends;
}

function curve(from, to, ends, nodeWidth) {
  const [x1, y1] = [from.x + nodeWidth, from.y + ends.begin];
  const [x2, y2] = [to.x, to.y + ends.end];
  if (x2 > x1) {
    const middle = (x1 + x2) / 2;
    return `M${x1},${y1} C${middle},${y1} ${middle},${y2} ${x2},${y2}`;
  }
  // Back to the same layer or an earlier one: around the right-hand side.
  const out = Math.max(x1, x2 + nodeWidth) + 60;
  return `M${x1},${y1} C${out},${y1} ${out},${y2} ${x2 + nodeWidth},${y2}`;
}

function GraphLink({ link, places, nodeWidth, ends, most, state }) {
  const share = most > 0 && link.weight > 0 ? Math.sqrt(link.weight / most) : 0;
  const thick = LINK_MIN + share * (LINK_MAX - LINK_MIN);
  const kind = ["graph-link", link.kind ?? "", link.weight === 0 ? "unused" : "", state].join(" ");
  return html`<path class=${kind} d=${curve(places.get(link.from), places.get(link.to), ends, nodeWidth)} stroke-width=${thick.toFixed(2)}>
    <title>${legible(link.note ?? link.label ?? "")}</title>
  </path>`;
}

function GraphNode({ node, place, width, state, point, pick }) {
  const name = legible(node.label);
  const note = node.note ? legible(node.note) : "";
  const told = `${name}${note ? `: ${note}` : ""}`;
  const kind = ["graph-node", node.kind ?? "", state].join(" ");
  const room = width - 2 * TEXT_MARGIN;
  const keys = (event) => (event.key === "Enter" || event.key === " ") && (event.preventDefault(), pick(node));
  return html`<g class=${kind} transform=${`translate(${place.x},${place.y})`} tabindex="0" role="button"
    onMouseEnter=${() => point(node.id)} onMouseLeave=${() => point(null)}
    onFocus=${() => point(node.id)} onBlur=${() => point(null)} onClick=${() => pick(node)} onKeyDown=${keys}>
    <title>${told}</title>
    <rect width=${width} height=${NODE_HEIGHT} rx="6" />
    <text class="graph-name" aria-hidden="true" x=${TEXT_MARGIN} y=${note ? 16 : 24}>${fitted(name, room, NAME_SIZE)}</text>
    ${note && html`<text class="graph-note" aria-hidden="true" x=${TEXT_MARGIN} y="30">${fitted(note, room, NOTE_SIZE)}</text>`}
  </g>`;
}

/** Return the nodes and links on every path through a node, before it and after it. */
function reachOf(id, links) {
  const [nodes, touched] = [new Set([id]), new Set()];
  for (const [here, there] of [["from", "to"], ["to", "from"]]) {
    const waiting = [id];
    const met = new Set(waiting);
    while (waiting.length > 0) {
      const at = waiting.pop();
      for (const link of links) {
        if (link[here] === at) {
          touched.add(link);
          nodes.add(link[there]);
          if (!met.has(link[there])) {
            met.add(link[there]);
            waiting.push(link[there]);
          }
        }
      }
    }
  }
  return { nodes, touched };
}

function LinksTold({ links, chosen, names, format }) {
  if (!chosen) {
    return html`<p class="graph-says note">Point at a node, or choose it, to follow what passes through it.</p>`;
  }
  const own = links.filter((link) => link.from === chosen || link.to === chosen);
  return html`<p class="graph-says" role="status"><strong><bdi>${legible(names.get(chosen))}</bdi></strong>
    <span class="note">${counted(own.length, "link")}</span>
    ${own.slice(0, 6).map((link) => html`<span class="graph-told"><bdi>${legible(names.get(link.from))}</bdi> → <bdi>${legible(names.get(link.to))}</bdi>${link.label && html` <code>${legible(link.label)}</code>`}${link.weight !== undefined && ` ${format(link.weight)}`}</span>`)}
    ${own.length > 6 && html`<span class="note">and ${number(own.length - 6)} more</span>`}
  </p>`;
}

/**
 * Draw a graph.  A node is `{id, label, note, kind, layer}`, a link `{from, to, label, note, kind, weight}`.
 * `lit` is a set of ids: those and the links between them are highlighted (or the links in `litLinks`);
 * without it the hovered or selected node decides.  `onPick(node)` is called on a selection.
 */
export function Graph({ title, note, nodes, links, lit, litLinks, onPick, format = number, empty = "There is nothing to draw." }) {
  const [pointed, setPointed] = useState(null);
  const [picked, setPicked] = useState(null);
  const known = useMemo(() => {
    const ids = new Set(nodes.map((node) => node.id));
    return links.filter((link) => ids.has(link.from) && ids.has(link.to));
  }, [nodes, links]);
  const box = useRef(null);
  const shownWidth = useWidth(box);
  const room = usePrinting() ? PAPER_WIDTH - FIGURE_PADDING : shownWidth;
  const { places, nodeWidth, width, height } = useMemo(() => placedNodes(nodes, known, room), [nodes, known, room]);
  const ends = useMemo(() => linkEnds(known, places), [known, places]);
  const names = useMemo(() => new Map(nodes.map((node) => [node.id, node.label])), [nodes]);
  const chosen = [pointed, picked].find((id) => id !== null && names.has(id)) ?? null;
  const reach = useMemo(() => (chosen ? reachOf(chosen, known) : null), [chosen, known]);
  const most = Math.max(0, ...known.map((link) => link.weight ?? 0));
  const inNodes = lit ?? reach?.nodes;
  const inLinks = (link) => (lit ? (litLinks ? litLinks.has(link) : lit.has(link.from) && lit.has(link.to)) : reach?.touched.has(link));
  const state = (in_) => (inNodes ? (in_ ? "lit" : "dim") : "");
  const pick = (node) => (setPicked(picked === node.id ? null : node.id), onPick?.(node));
  if (nodes.length === 0) {
    return html`<figure class="graph"><figcaption>${title}</figcaption><p class="note nothing">${empty}</p></figure>`;
  }
  return html`<figure class="graph" aria-label=${title}>
    <figcaption>${title}${note && html` <span class="note">${note}</span>`}</figcaption>
    <div class="graph-box" tabindex="0" role="region" aria-label=${title} ref=${box}>
      <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} style=${{ minWidth: `${Math.floor(width * SCALE_LEAST)}px` }}>
        ${known.map((link) => html`<${GraphLink} link=${link} places=${places} nodeWidth=${nodeWidth} ends=${ends.get(link)} most=${most} state=${state(inLinks(link))} />`)}
        ${nodes.map((node) => html`<${GraphNode} key=${node.id} node=${node} place=${places.get(node.id)} width=${nodeWidth} state=${state(inNodes?.has(node.id))} point=${setPointed} pick=${pick} />`)}
      </svg>
    </div>
    <${LinksTold} links=${known} chosen=${chosen} names=${names} format=${format} />
  </figure>`;
}
