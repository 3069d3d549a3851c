/** Helpers to find and create elements. Text from users never becomes markup. */
import { hue, name } from "./words.js";

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

/** Show the user's avatar: the first letter on the user's colour, with the presence dot if `dot`. */
export function dress(face: HTMLElement, user: string, dot = true): void {
  if (face.dataset.user === user) return;
  face.dataset.user = user;
  face.classList.remove("room");
  face.style.setProperty("--hue", String(hue(user)));
  face.replaceChildren([...name(user)][0] ?? "?");
  if (!dot) return;
  const mark = document.createElement("green-dot");
  mark.setAttribute("user", user);
  face.append(mark);
}

export function dressRoom(face: HTMLElement): void {
  if (face.dataset.user === "#") return;
  face.dataset.user = "#";
  face.classList.add("room");
  face.replaceChildren("#");
}
