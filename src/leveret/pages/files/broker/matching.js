// The bindings of an exchange that match a message, by the rules of the exchange's type.
//
// The broker decides; this repeats its rule for the types that do not depend on the broker's state.

/** Return whether the words of a key match those of a binding: `*` is one word, `#` any number. */
export function topicFits(pattern, key) {
  const wanted = pattern.split(".");
  const words = key.split(".");
  // reached[w]: the pattern so far matches the first w words.
  let reached = words.map(() => false);
  reached.unshift(true);
  for (const word of wanted) {
    const next = reached.map(() => false);
    for (let at = 0; at < reached.length; at += 1) {
      if (word === "#") {
        next[at] = reached[at] || (at > 0 && next[at - 1]);
      } else if (at > 0) {
        next[at] = reached[at - 1] && (word === "*" || word === words[at - 1]);
      }
    }
    reached = next;
  }
  return reached[words.length];
}

/** Return whether headers satisfy the arguments of a binding. */
export function headersFit(wanted, headers) {
  const mode = wanted["x-match"] ?? "all";
  const withX = mode.endsWith("-with-x");
  const names = Object.keys(wanted).filter((name) => name !== "x-match" && (withX || !name.startsWith("x-")));
  const fits = (name) =>
    Object.hasOwn(headers, name) &&
    (wanted[name] === null || JSON.stringify(wanted[name]) === JSON.stringify(headers[name]));
  return mode.startsWith("all") ? names.every(fits) : names.some(fits);
}

/** The types that choose among their bindings by state that only the broker knows. */
const CHOOSING = ["x-consistent-hash", "x-local-random", "x-modulus-hash", "x-random", "x-super-stream"];

/** The routing type of an exchange: its own, or for a delaying one the delayed type. */
export function routesAs(exchange) {
  return exchange.type === "x-delayed-message" ? exchange.arguments["x-delayed-type"] : exchange.type;
}

/** Return the alternate exchange, from an argument or a policy; "" for none. */
export function alternateOf(exchange) {
  return exchange?.alternate_exchange ?? "";
}

/** Return "yes", "no" or "maybe": whether a message follows a binding of an exchange. */
export function goesBy(exchange, binding, key, headers) {
  const kind = routesAs(exchange);
  if (CHOOSING.includes(kind)) {
    return "maybe";
  }
  const fits = {
    direct: () => binding.routing_key === key,
    topic: () => topicFits(binding.routing_key, key),
    headers: () => headersFit(binding.arguments ?? {}, headers),
  }[kind];
  return !fits || fits() ? "yes" : "no";
}

/**
 * Follow a message from an exchange through a topology `{exchanges, bindings}`.
 *
 * Returns the exchanges and queues that it reaches, and the bindings that it follows, each with
 * "yes", or "maybe" if one of several is chosen; and the exchanges whose alternate one it takes.
 */
export function follow(topology, start, key, headers) {
  const reached = { exchanges: new Map([[start, "yes"]]), queues: new Map(), bindings: new Map(), alternates: new Map() };
  const left = [start];
  const reach = (name, sure) => {
    const known = reached.exchanges.get(name);
    if (topology.exchanges.has(name) && (known === undefined || (known === "maybe" && sure === "yes"))) {
      reached.exchanges.set(name, sure);
      left.push(name);
    }
  };
  while (left.length > 0) {
    const name = left.shift();
    const exchange = topology.exchanges.get(name);
    const own = topology.bindings.filter((one) => one.source === name);
    const taken = own.filter((one) => goesBy(exchange, one, key, headers) !== "no");
    for (const binding of taken) {
      const here = goesBy(exchange, binding, key, headers);
      const sure = reached.exchanges.get(name) === "yes" ? here : "maybe";
      reached.bindings.set(binding, sure);
      if (binding.destination_type === "exchange") {
        reach(binding.destination, sure);
      } else if (reached.queues.get(binding.destination) !== "yes") {
        reached.queues.set(binding.destination, sure);
      }
    }
    const other = alternateOf(exchange);
    if (taken.length === 0 && other) {
      reached.alternates.set(name, reached.exchanges.get(name));
      reach(other, reached.exchanges.get(name));
    }
  }
  return reached;
}
