/** Milliseconds that only go forward: the clock on the wall may be wrong, and be set right while we run. */
export const now = (): number => performance.now();
