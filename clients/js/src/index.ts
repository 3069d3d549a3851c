/** The client of a herenow presence server. */
export { HerenowError } from "./errors.js";
export { Herenow, type Stop, type Watcher } from "./herenow.js";
export type * from "./types.js";
