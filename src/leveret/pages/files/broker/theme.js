// Runs before anything is drawn: a reader who chose dark or light sees no flash of the other.
(function () {
  try {
    const chosen = localStorage.getItem("leveret-theme");
    if (chosen === "dark" || chosen === "light") {
      document.documentElement.dataset.theme = chosen;
    }
  } catch {
    // A browser without storage shows what its system prefers.
  }
})();
