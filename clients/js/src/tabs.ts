/**
 * One socket for all tabs: the tab that holds a lock leads, the others talk to it through a channel.
 *
 * A lock is passed on by the browser when its tab closes or crashes, so nobody counts tabs and nobody elects. A tab that
 * is asleep with the lock in its hand (phones do that) is noticed by its silence while somebody looks, and robbed.
 * Without locks or channels every tab leads itself.
 */
import type { News, Wish } from "./desk.js";

export interface Tabs {
  /** To all the others: what the leader says, or what it is asked. */
  post(message: News | Wish): void;
  /** The leader does not answer: take its place. */
  rob(): void;
  end(): void;
}

export interface Tab {
  hear(news: News): void;
  /** A wish of another tab; comes only while this one leads. */
  take(wish: Wish): void;
  lead(): void;
  /** Somebody else does. */
  follow(): void;
}

/** Undefined: tabs cannot share here. */
export function tabs(name: string, tab: Tab): Tabs | undefined {
  const locks = globalThis.navigator?.locks;
  if (!locks || typeof BroadcastChannel !== "function") return;
  let channel: BroadcastChannel;
  try {
    channel = new BroadcastChannel(name);
  } catch {
    return; // forbidden, like all that could tell one site's pages about each other
  }
  let leads = false;
  let ended = false;
  let release = () => {};
  /** The request that leads; a tab that robs may rob itself, if its turn came at that moment. */
  let leading: unknown;
  let waiting = new AbortController();

  const request = (how: LockOptions) => {
    let mine = false;
    const lead = () => {
      leading = how;
      if (leads) return;
      leads = true;
      tab.lead();
    };
    const hold = () =>
      new Promise<void>((resolve) => {
        if (ended) return resolve();
        release = resolve;
        mine = true;
        lead();
      });
    locks.request(name, how, hold).catch((error) => {
      if (ended) return;
      if (!mine) {
        // Locks are refused here (a sandboxed frame): lead, even if others do.
        if (error?.name !== "AbortError") lead();
      } else if (leading === how) {
        leads = false;
        tab.follow();
        queue();
      }
    });
  };
  const queue = () => {
    waiting = new AbortController();
    request({ signal: waiting.signal });
  };

  channel.onmessage = ({ data }) => {
    if (ended) return;
    if ("tab" in data) leads && tab.take(data);
    else if (!leads) tab.hear(data);
  };
  queue();

  return {
    post: (message) => ended || channel.postMessage(message),
    rob() {
      if (leads || ended) return;
      waiting.abort();
      request({ steal: true });
    },
    end() {
      if (ended) return;
      ended = true;
      waiting.abort();
      release();
      channel.close();
    },
  };
}
