// Runs before the first paint: a reader with a dark or light theme sees no flash of the other.
(function () {
  try {
    const chosen = localStorage.getItem("leveret-theme");
    if (chosen === "dark" || chosen === "light") {
      document.documentElement.dataset.theme = chosen;
    }
  } catch {
    // A browser without storage uses its system's preference.
  }
})();
