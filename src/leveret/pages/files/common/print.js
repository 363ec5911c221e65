// Whether the page is being printed, and on what.

import { useEffect, useState } from "../vendor/htm-preact.js";

/** The width of upright A4 within its margins, in pixels; on other paper there is as much or more. */
export const PAPER_WIDTH = 690;

/** Return whether the page is being printed: then all is drawn, and as wide as the paper. */
export function usePrinting() {
  const [printing, setPrinting] = useState(false);
  useEffect(() => {
    const [begin, end] = [() => setPrinting(true), () => setPrinting(false)];
    addEventListener("beforeprint", begin);
    addEventListener("afterprint", end);
    return () => {
      removeEventListener("beforeprint", begin);
      removeEventListener("afterprint", end);
    };
  }, []);
  return printing;
}
