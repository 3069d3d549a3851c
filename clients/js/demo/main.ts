/** The demo: choose a user and see the others. It uses only the SDK. `words` makes the texts, this module paints them. */
import { Herenow } from "/sdk/herenow.js";
import { defineGreenDot } from "/sdk/green-dot.js";
import { Rest } from "/sdk/rest.js";
import type { Me, Mode, Presence } from "../src/types.js";
import { notice } from "./banner.js";
import { at, dress, dressRoom, make, say } from "./elements.js";
import { Messages, type Message } from "./messages.js";
import { clock, custom, name, own, sentence } from "./words.js";

const PEOPLE = ["ana", "bo", "chen", "dara"];
const LOBBY = "#lobby";
const ROOM = "lobby";
const EMOJIS = ["💬", "🍜", "🎧", "🚲", "🌴", "🤒"];
const TICK = 10_000; // ms between two updates of texts like "5 min ago"

const asked = new URLSearchParams(location.hash.slice(1));
const user = asked.get("user");
addEventListener("hashchange", () => location.reload());
user ? begin(user) : choose();

/** The link to this page as another user; it keeps the key of the demo. */
function link(person?: string): string {
  const next = new URLSearchParams();
  if (person) next.set("user", person);
  const key = asked.get("key");
  if (key) next.set("key", key);
  return `#${next}`;
}

function choose(): void {
  at("choose").hidden = false;
  for (const person of PEOPLE) {
    const face = make("span", { className: "avatar" });
    dress(face, person, false);
    at("faces").append(make("li", {}, make("a", { href: link(person) }, face, name(person))));
  }
}

/** Request a token, as an application does from its own back end. */
async function fetchToken(person: string): Promise<string> {
  const key = asked.get("key");
  const answer = await fetch(`/demo/token/${encodeURIComponent(person)}`, key ? { headers: { "x-demo-key": key } } : {});
  if (answer.status === 403) throw new Error("this page needs the link that herenow serve --demo prints");
  if (!answer.ok) throw new Error(`the server answered ${answer.status}`);
  return answer.text();
}

function begin(user: string): void {
  at("app").hidden = false;
  const token = asked.get("token") ?? (() => fetchToken(user));
  const here = new Herenow("/ws/presence", { token });
  const rest = new Rest("/", { token });
  const people = new Map<string, Presence>();
  const typing = new Map<string, Set<string>>(); // by conversation
  const unread = new Map<string, number>();
  const rows = new Map<string, Row>();
  let blocked = new Set<string>();
  let talk = LOBBY;
  let skew = 0; // ms that our clock is behind the server's

  const messages = new Messages(user, (where, message) => {
    if (blocked.has(message.from)) return;
    if (where !== talk || document.hidden) unread.set(where, (unread.get(where) ?? 0) + 1);
    paint();
    if (where === talk) paintMessages();
  });

  defineGreenDot(here);
  document.title = `${name(user)} · herenow`;
  say(at("my-name"), name(user));
  dress(at("my-face"), user);
  at<HTMLAnchorElement>("other").href = link();

  here.watchContacts((now) => {
    people.set(now.user, now);
    if (!now.stale && now.asOf) skew = now.asOf - Date.now();
    paint();
  });
  here.open(ROOM);
  here.onTyping(({ user: who, room, typing: types }) => {
    const where = room === undefined ? who : LOBBY;
    const all = typing.get(where) ?? new Set();
    types ? all.add(who) : all.delete(who);
    typing.set(where, all);
    paint();
  });
  here.me.on(paintMe);
  here.onState(paintState);
  here.onError((error) => console.warn(`${error.code}: ${error.message}`));
  setInterval(paint, TICK);
  addEventListener("focus", () => (unread.delete(talk), paint()));
  void readBlocks();

  bindModes();
  bindTalk();
  bindMine();
  paintState();
  open(LOBBY, false);

  // Painting

  function paint(): void {
    const shown = [LOBBY, ...[...people.keys()].filter((each) => each !== user).sort()];
    for (const [each, { item }] of rows) if (!shown.includes(each)) item.remove(), rows.delete(each);
    shown.forEach((each, place) => {
      const row = rows.get(each) ?? newRow(each);
      if (at("people").children[place] !== row.item) at("people").insertBefore(row.item, at("people").children[place] ?? null);
      paintRow(row, each);
    });
    paintHead();
    paintHint();
  }

  function newRow(each: string): Row {
    const face = make("span", { className: "avatar" });
    const line = make("span", { className: "line" });
    const count = make("span", { className: "unread" });
    const title = each === LOBBY ? "Lobby" : name(each);
    const button = make("button", { onclick: () => open(each, true) }, face, make("span", { className: "who" }, make("strong", { textContent: title }), line), count);
    button.dataset.talk = each;
    each === LOBBY ? dressRoom(face) : dress(face, each);
    const row = { item: make("li", {}, button), button, line, count };
    rows.set(each, row);
    return row;
  }

  function paintRow({ button, line, count }: Row, each: string): void {
    const types = typers(each);
    button.setAttribute("aria-current", String(each === talk));
    button.classList.toggle("types", types.length > 0);
    button.classList.toggle("blocked", blocked.has(each));
    say(line, types.length ? (each === LOBBY ? `${types.map(name).join(", ")} typing…` : "typing…") : about(each));
    count.hidden = !unread.get(each);
    say(count, String(unread.get(each) ?? ""));
  }

  function about(each: string): string {
    if (blocked.has(each)) return "Blocked";
    if (each === LOBBY) {
      const present = [...people.values()].filter(({ user: who, status }) => who !== user && status !== "offline" && status !== "unknown");
      return present.length ? `${present.map((person) => name(person.user)).sort().join(", ")} and you` : "Nobody but you";
    }
    const person = people.get(each);
    return person ? custom(person) || sentence(person, Date.now() + skew) : "";
  }

  function typers(where: string): string[] {
    return [...(typing.get(where) ?? [])].filter((who) => who !== user && !blocked.has(who));
  }

  function paintHead(): void {
    const person = people.get(talk);
    say(at("title"), talk === LOBBY ? "Lobby" : name(talk));
    talk === LOBBY ? dressRoom(at("face")) : dress(at("face"), talk);
    const words = person && !blocked.has(talk) ? [sentence(person, Date.now() + skew), custom(person)] : [about(talk)];
    say(at("line"), words.filter(Boolean).join(" · "));
    at("block").hidden = talk === LOBBY;
    say(at("block"), blocked.has(talk) ? "Unblock" : "Block");
    const types = typers(talk);
    say(at("typing-text"), types.length ? `${types.map(name).join(" and ")} ${types.length > 1 ? "are" : "is"} typing` : "");
    at<HTMLInputElement>("text").placeholder = talk === LOBBY ? "Say something to everybody" : `Say something to ${name(talk)}`;
  }

  /** If no other user is online, show how to open a second tab. */
  function paintHint(): void {
    const company = [...people.values()].some((person) => person.user !== user && person.status !== "offline");
    const next = PEOPLE.find((each) => each !== user && people.has(each));
    at("hint").hidden = company || !next || here.state.phase !== "connected";
    if (at("hint").hidden || at("hint").dataset.next === next) return;
    at("hint").dataset.next = next;
    at("hint").replaceChildren(
      "Nobody else is here yet. ",
      make("a", { href: link(next), target: "_blank", textContent: `Open a second tab as ${name(next!)}` }),
      " and watch the dot turn green.",
    );
  }

  function paintMe(me: Me): void {
    say(at("my-line"), [own(me), custom(me)].filter(Boolean).join(" · "));
    for (const button of at("modes").querySelectorAll("button")) {
      const chosen = button.dataset.mode === me.mode;
      button.setAttribute("aria-checked", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
  }

  function paintState(): void {
    const told = notice(here.state);
    at("banner").hidden = !told;
    say(at("banner-text"), told?.text ?? "");
    const button = at<HTMLButtonElement>("banner-act");
    button.hidden = !told?.act;
    say(button, told?.act ?? "");
    if (here.state.phase === "connected") void readBlocks();
    else say(at("my-line"), "Not connected");
    if (here.state.phase === "connected" && here.me.get()) paintMe(here.me.get()!);
    paint();
  }

  function paintMessages(): void {
    const list = at("messages");
    const said = messages.of(talk).filter(({ from }) => !blocked.has(from));
    const empty = talk === LOBBY ? "Everybody is in the lobby. Type something: the others see that you do." : `This is between you and ${name(talk)}. Type something: ${name(talk)} sees that you do.`;
    list.replaceChildren(...(said.length ? said.map(bubble) : [make("li", { className: "empty", textContent: empty })]));
    list.scrollTop = list.scrollHeight;
  }

  function bubble({ from, text, at: when }: Message): HTMLElement {
    const item = make("li", { className: from === user ? "message own" : "message" });
    if (from !== user && talk === LOBBY) item.append(make("b", { textContent: name(from) }));
    item.append(text, make("time", { textContent: clock(when) }));
    return item;
  }

  // Actions

  function open(where: string, look: boolean): void {
    if (talk !== where) quiet();
    talk = where;
    unread.delete(where);
    if (look) at("app").dataset.view = "talk";
    paint();
    paintMessages();
    if (look && matchMedia("(hover: hover)").matches) at("text").focus(); // on touch devices a keyboard would open
  }

  const place = () => (talk === LOBBY ? { room: ROOM } : { to: talk });

  /** Clear the input and report the end of typing in this conversation. */
  function quiet(): void {
    const text = at<HTMLInputElement>("text");
    if (!text.value) return;
    text.value = "";
    here.typing({ ...place(), typing: false });
  }

  function bindTalk(): void {
    const text = at<HTMLInputElement>("text");
    text.oninput = () => here.typing({ ...place(), typing: text.value !== "" });
    at<HTMLFormElement>("say").onsubmit = (event) => {
      event.preventDefault();
      const said = text.value.trim();
      if (!said) return;
      messages.send(talk, said);
      quiet();
      paintMessages();
    };
    at("back").onclick = back;
    // Braces, because a handler that returns false would cancel the key.
    at("talk").onkeydown = ({ key }) => {
      if (key === "Escape") back();
    };
    at("block").onclick = () => void block(talk, !blocked.has(talk));
    at("people").onkeydown = (event) => {
      step(event, at("people"), "button");
    };
    at("leave").onclick = () => here.bye();
    at("banner-act").onclick = () => here.connect();
  }

  function back(): void {
    delete at("app").dataset.view;
    rows.get(talk)?.button.focus();
  }

  async function block(who: string, so: boolean): Promise<void> {
    const button = at<HTMLButtonElement>("block");
    button.disabled = true;
    try {
      await (so ? rest.block(who) : rest.unblock(who));
      await readBlocks();
    } catch (error) {
      say(at("line"), `That did not work: ${(error as Error).message}`);
    }
    button.disabled = false;
  }

  async function readBlocks(): Promise<void> {
    try {
      blocked = new Set(await rest.blocks());
      paint();
      paintMessages();
    } catch {
      // the next connection reads them again
    }
  }

  function bindModes(): void {
    at("modes").onclick = ({ target }) => {
      const mode = (target as HTMLElement).closest("button")?.dataset.mode;
      if (mode) here.me.set({ mode: mode as Mode }).catch((error) => say(at("my-line"), error.message));
    };
    at("modes").onkeydown = (event) => {
      const next = step(event, at("modes"), "button");
      next?.click(); // as with radio buttons, moving the focus selects
    };
  }

  function bindMine(): void {
    const dialog = at<HTMLDialogElement>("mine");
    const text = at<HTMLInputElement>("mine-text");
    const emoji = at<HTMLInputElement>("mine-emoji");
    const until = at<HTMLSelectElement>("mine-until");
    const visibility = at<HTMLSelectElement>("mine-visibility");
    const share = at<HTMLInputElement>("mine-share");
    const privacy = [visibility, share];
    const failed = (error: unknown) => say(at("mine-error"), (error as Error).message);
    at("emojis").append(...EMOJIS.map((each) => make("button", { type: "button", textContent: each, onclick: () => ((emoji.value = each), text.focus()) })));

    at("edit").onclick = () => {
      text.value = here.me.get()?.custom?.text ?? "";
      emoji.value = here.me.get()?.custom?.emoji ?? "";
      until.value = "";
      say(at("mine-error"), "");
      for (const each of privacy) each.disabled = true;
      rest.preferences().then((now) => {
        visibility.value = now.visibility;
        share.checked = now.shareLastSeen;
        for (const each of privacy) each.disabled = false;
      }, failed);
      dialog.showModal();
      text.focus();
    };
    at("mine-cancel").onclick = () => dialog.close();
    at("mine-clear").onclick = () => here.me.clear().then(() => dialog.close(), failed);
    at<HTMLFormElement>("mine-form").onsubmit = async (event) => {
      event.preventDefault();
      const { mode = "auto" } = here.me.get() ?? {};
      const end = until.value ? Date.now() + skew + Number(until.value) * 60_000 : null;
      try {
        // A mode other than auto ends at the same time as the custom status.
        await here.me.set({ ...(end && mode !== "auto" && { mode }), text: text.value, emoji: emoji.value, until: end });
        if (!visibility.disabled) await rest.setPreferences({ visibility: visibility.value as "contacts", shareLastSeen: share.checked });
        dialog.close();
      } catch (error) {
        failed(error);
      }
    };
  }
}

interface Row {
  item: HTMLElement;
  button: HTMLButtonElement;
  line: HTMLElement;
  count: HTMLElement;
}

/** Move the focus with the arrow keys; returns the element that got it. */
function step(event: KeyboardEvent, inside: HTMLElement, what: string): HTMLElement | undefined {
  const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
  const all = [...inside.querySelectorAll<HTMLElement>(what)];
  const now = all.indexOf(document.activeElement as HTMLElement);
  if (!by || now < 0) return;
  event.preventDefault();
  const next = all[(now + by + all.length) % all.length]!;
  next.focus();
  return next;
}
