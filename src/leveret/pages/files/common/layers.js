// Positions of the nodes of a graph in layers, from left to right, with few crossings of its links.

/** Return the layer of each node: the given one, or one more than the highest before it. */
export function layersOf(nodes, links) {
  const layers = new Map(nodes.map((node) => [node.id, node.layer ?? 0]));
  const free = new Set(nodes.filter((node) => node.layer === undefined).map((node) => node.id));
  // One round per node reaches the end of each path; a cycle ends there too.
  for (let round = 0; round < Math.min(nodes.length, 12); round += 1) {
    let changed = false;
    for (const { from, to } of links) {
      const next = (layers.get(from) ?? 0) + 1;
      if (free.has(to) && layers.has(from) && from !== to && layers.get(to) < next && next < 12) {
        layers.set(to, next);
        changed = true;
      }
    }
    if (!changed) {
      break;
    }
  }
  return layers;
}

/** Return the mean position of a node's neighbours, or its own without any. */
function pull(id, neighbours, places) {
  const known = (neighbours.get(id) ?? []).filter((other) => places.has(other));
  return known.length === 0 ? places.get(id) : known.reduce((sum, other) => sum + places.get(other), 0) / known.length;
}

function neighboursOf(links) {
  const found = new Map();
  for (const { from, to } of links) {
    found.set(from, [...(found.get(from) ?? []), to]);
    found.set(to, [...(found.get(to) ?? []), from]);
  }
  return found;
}

/** Return the columns of nodes, from left to right, each from top to bottom. */
export function columnsOf(nodes, links) {
  const layers = layersOf(nodes, links);
  const used = [...new Set(layers.values())].sort((one, other) => one - other);
  const columns = used.map((layer) => nodes.filter((node) => layers.get(node.id) === layer));
  const neighbours = neighboursOf(links);
  const places = new Map();
  const placed = (column) => column.forEach((node, place) => places.set(node.id, (place + 0.5) / column.length));
  columns.forEach(placed);
  for (let round = 0; round < 6; round += 1) {
    const order = round % 2 === 0 ? columns : [...columns].reverse();
    for (const column of order) {
      const pulls = new Map(column.map((node) => [node.id, pull(node.id, neighbours, places)]));
      column.sort((one, other) => pulls.get(one.id) - pulls.get(other.id));
      placed(column);
    }
  }
  return columns;
}
