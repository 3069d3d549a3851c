/**
 * `<green-dot user="ana"></green-dot>`: somebody's status as a shape, a colour and a word.
 *
 * The shape alone tells the status, for who sees no colours; the word is there for who sees nothing. Whatever changes is
 * painted in one animation frame, however many dots there are. Colours and size are CSS variables. Nothing of a user's
 * data becomes markup.
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
  /** The element's name, if `green-dot` is taken. */
  name?: string;
  /** In another language. */
  words?: Partial<Words>;
}

let here: Herenow | undefined;
let words = ENGLISH;
let sheet: CSSStyleSheet | undefined;
const dots = new Set<Dot>();
const unpainted = new Set<Dot>();

/** Dots on this page, also those that are there already, get their status from this client. */
export function defineGreenDot(client: Herenow, options: DotOptions = {}): void {
  here = client;
  words = { ...ENGLISH, ...options.words };
  const name = options.name ?? "green-dot";
  // A class of its own each time: an element's class has one name.
  if (!customElements.get(name)) customElements.define(name, class extends dotClass() {});
  for (const dot of dots) dot.look();
}

interface Dot extends HTMLElement {
  look(): void;
  paint(): void;
}

let made: (new () => Dot) & { observedAttributes: string[] };

/** Made when needed: where there is no page, HTMLElement is not even a name. */
function dotClass(): typeof made {
  return (made ??= class extends HTMLElement implements Dot {
    static observedAttributes = ["user"];
    #mark = document.createElement("i");
    #stop = () => {};
    #presence: Presence | undefined;
    /** What the page came with, from a server that rendered it: shown as last known until there is word. */
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

    /** Watch whom the attribute names; nobody without one. */
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
      // For the page's own style and tests.
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

/** One sheet for all of them; as an element where the browser is too old for that. */
function dress(root: ShadowRoot): void {
  try {
    if (!sheet) (sheet = new CSSStyleSheet()).replaceSync(CSS);
    root.adoptedStyleSheets = [sheet];
  } catch {
    root.append(Object.assign(document.createElement("style"), { textContent: CSS }));
  }
}
