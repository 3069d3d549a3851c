/** Elements by name, and new ones. Whatever a server said becomes text, never markup. */
export function at<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, given: Partial<HTMLElementTagNameMap[K]> = {}, ...inside: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...inside);
  return element;
}

/** Only what differs is touched: a screen reader should not read the same line again. */
export function say(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** The rows of a table, or one line that says why there are none. A cell is text, or an element. */
export function fill(body: HTMLElement, rows: (string | Node)[][], none: string): void {
  const made = rows.map((cells) => make("tr", {}, ...cells.map((cell, index) => make(index ? "td" : "th", index ? {} : { scope: "row" }, cell))));
  const columns = body.closest("table")!.querySelectorAll("thead th").length;
  body.replaceChildren(...(made.length ? made : [make("tr", { className: "none" }, make("td", { colSpan: columns }, none))]));
}
