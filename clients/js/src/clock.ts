/** Monotonic milliseconds: unlike the wall clock it does not jump when the system time is corrected. */
export const now = (): number => performance.now();
