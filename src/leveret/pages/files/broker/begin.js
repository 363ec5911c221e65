// Runs before everything else: the chosen theme, and the first requests, which need not wait for the page's modules.
(function () {
  try {
    // A reader with a dark or light theme sees no flash of the other.
    const chosen = localStorage.getItem("leveret-theme");
    if (chosen === "dark" || chosen === "light") {
      document.documentElement.dataset.theme = chosen;
    }
  } catch {
    // A browser without storage uses its system's preference.
  }
  // `api.js` takes these answers instead of sending the same requests.
  const begun = (globalThis.leveretBegun = new Map());
  const begin = (where) => {
    const answer = fetch(`api/${where}`, {
      cache: "no-store",
      headers: { "X-Requested-With": "leveret", Accept: "application/json" },
      signal: AbortSignal.timeout(30000),
    });
    begun.set(where, answer);
    return answer;
  };
  begin("whoami").then((answer) => {
    if (answer.ok && /^(#\/?(overview)?)?$/.test(location.hash)) {
      begin("overview?msg_rates_age=600&msg_rates_incr=5&lengths_age=600&lengths_incr=5").catch(() => {});
    }
  }, () => {});
})();
