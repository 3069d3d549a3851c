/** The client of a herenow presence server: who is here now? */
export { Herenow, HerenowError, type Stop, type Watcher } from "./herenow.js";
export type * from "./types.js";
