/** Helpers to find and create elements. Text from the server never becomes markup. */
export function at<T extends HTMLElement = HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

export function make<K extends keyof HTMLElementTagNameMap>(tag: K, given: Partial<HTMLElementTagNameMap[K]> = {}, ...inside: (Node | string)[]): HTMLElementTagNameMap[K] {
  const element = Object.assign(document.createElement(tag), given);
  element.append(...inside);
  return element;
}

/** Set the text only if it differs, so that screen readers do not repeat it. */
export function say(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Replace the rows of a table; without rows, show the text `none`. A cell is text or an element. */
export function fill(body: HTMLElement, rows: (string | Node)[][], none: string): void {
  const made = rows.map((cells) => make("tr", {}, ...cells.map((cell, index) => make(index ? "td" : "th", index ? {} : { scope: "row" }, cell))));
  const columns = body.closest("table")!.querySelectorAll("thead th").length;
  body.replaceChildren(...(made.length ? made : [make("tr", { className: "none" }, make("td", { colSpan: columns }, none))]));
}
