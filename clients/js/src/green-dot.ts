/**
 * `<green-dot user="ana"></green-dot>`: a user's status as a shape, a colour and a label.
 *
 * Each status has its own shape, for users who do not see colours, and a label for screen readers. All changed dots are
 * painted in one animation frame. Colours and size are CSS variables. User data never becomes markup.
 */
import type { Herenow } from "./herenow.js";
import type { Presence, Status } from "./types.js";

const CSS = `
:host { display: inline-block; width: var(--green-dot-size, .7em); height: var(--green-dot-size, .7em); vertical-align: baseline;
  --on: var(--green-dot-online, #23853d); --aw: var(--green-dot-away, #a66c00); --bu: var(--green-dot-busy, #c42b23); --of: var(--green-dot-offline, #6f7681); }
:host([hidden]) { display: none; }
@media (prefers-color-scheme: dark) { :host { --on: var(--green-dot-online, #4cc76a); --aw: var(--green-dot-away, #e2ac3c);
  --bu: var(--green-dot-busy, #ff6b61); --of: var(--green-dot-offline, #9aa3af); } }
i { display: block; box-sizing: border-box; width: 100%; height: 100%; border: .15em solid var(--of); border-radius: 50%; forced-color-adjust: none; }
.online { border-color: var(--on); background: var(--on); }
.away { border-color: var(--aw); background: linear-gradient(90deg, var(--aw) 50%, transparent 50%); }
.busy { border-color: var(--bu); background: var(--bu); border-radius: 15%; }
.unknown { border-style: dotted; }
.stale { opacity: .45; border-style: dashed; }
@media (forced-colors: active) { :host { --on: CanvasText; --aw: CanvasText; --bu: CanvasText; --of: CanvasText; } }
`;

/** The labels of the statuses, and the addition for a stale one. */
export type Words = Record<Status | "stale", string>;

const ENGLISH: Words = {
  online: "online",
  away: "away",
  busy: "do not disturb",
  offline: "offline",
  unknown: "status unknown",
  stale: "last known",
};

const STATUSES: Status[] = ["online", "away", "busy", "offline"];

export interface DotOptions {
  /** The element's name; default `green-dot`. */
  name?: string;
  /** Labels in another language; missing ones are in English. */
  words?: Partial<Words>;
}

let here: Herenow | undefined;
let words = ENGLISH;
let sheet: CSSStyleSheet | undefined;
const dots = new Set<Dot>();
const unpainted = new Set<Dot>();

/** Define the `<green-dot>` element. All dots of the page, including existing ones, get their status from this client. */
export function defineGreenDot(client: Herenow, options: DotOptions = {}): void {
  here = client;
  words = { ...ENGLISH, ...options.words };
  const name = options.name ?? "green-dot";
  // A new subclass each time: a class can be registered under one name only.
  if (!customElements.get(name)) customElements.define(name, class extends dotClass() {});
  for (const dot of dots) dot.look();
}

interface Dot extends HTMLElement {
  look(): void;
  paint(): void;
}

let made: (new () => Dot) & { observedAttributes: string[] };

/** The element's class, created on first use: outside a page HTMLElement is not defined. */
function dotClass(): typeof made {
  return (made ??= class extends HTMLElement implements Dot {
    static observedAttributes = ["user"];
    #mark = document.createElement("i");
    #stop = () => {};
    #presence: Presence | undefined;
    /** The `status` attribute that the server rendered into the page: shown as stale until a status is received. */
    #came: Status = "unknown";
    #painted = false;

    constructor() {
      super();
      this.#mark.setAttribute("role", "img");
      const root = this.attachShadow({ mode: "open" });
      dress(root);
      root.append(this.#mark);
    }

    connectedCallback(): void {
      dots.add(this);
      this.look();
    }

    disconnectedCallback(): void {
      dots.delete(this);
      this.#stop();
    }

    attributeChangedCallback(): void {
      if (this.isConnected) this.look();
    }

    /** Watch the user in the attribute; without one, stop watching. */
    look(): void {
      this.#stop();
      this.#stop = () => {};
      const user = this.getAttribute("user");
      const came = this.#painted ? undefined : this.getAttribute("status");
      this.#came = STATUSES.find((status) => status === came) ?? "unknown";
      this.#show(undefined);
      if (user && here) this.#stop = here.watch([user], (now) => this.#show(now));
    }

    #show(presence: Presence | undefined): void {
      this.#presence = presence;
      if (!unpainted.size) requestAnimationFrame(paintAll);
      unpainted.add(this);
    }

    paint(): void {
      this.#painted = true;
      const { status, stale } = this.#presence ?? { status: this.#came, stale: this.#came !== "unknown" };
      this.#mark.className = stale ? `${status} stale` : status;
      const label = stale ? `${words[status]} (${words.stale})` : words[status];
      this.#mark.setAttribute("aria-label", label);
      this.#mark.title = label;
      // For the page's own style sheet and tests.
      this.setAttribute("status", status);
      this.toggleAttribute("stale", stale);
    }
  });
}

function paintAll(): void {
  const now = [...unpainted];
  unpainted.clear();
  for (const dot of now) dot.paint();
}

/** Add the style: one shared sheet for all dots, or a `<style>` element in old browsers. */
function dress(root: ShadowRoot): void {
  try {
    if (!sheet) (sheet = new CSSStyleSheet()).replaceSync(CSS);
    root.adoptedStyleSheets = [sheet];
  } catch {
    root.append(Object.assign(document.createElement("style"), { textContent: CSS }));
  }
}
