// Whether the page is being printed, and the paper's width.

import { useEffect, useState } from "../vendor/htm-preact.js";

/** The width of upright A4 within its margins, in pixels; other paper is at least as wide. */
export const PAPER_WIDTH = 690;

/** Return whether the page is being printed: then everything is drawn, as wide as the paper. */
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
