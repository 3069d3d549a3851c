/**
 * One socket for all tabs: the tab that holds a Web Lock leads, the others send messages to it through a BroadcastChannel.
 *
 * The browser passes the lock on when its tab closes or crashes, so no election is needed. A leading tab that is asleep (as
 * on phones) does not answer; a visible tab then steals the lock. Without locks or channels every tab has its own socket.
 */
import type { News, Wish } from "./desk.js";

export interface Tabs {
  /** Send a message to all other tabs: news of the leader, or a wish to it. */
  post(message: News | Wish): void;
  /** Take over the lead from a tab that does not answer. */
  rob(): void;
  end(): void;
}

export interface Tab {
  hear(news: News): void;
  /** A wish of another tab; called only while this tab leads. */
  take(wish: Wish): void;
  /** This tab leads from now on. */
  lead(): void;
  /** Another tab has taken over the lead. */
  follow(): void;
}

/** Join the tabs that share `name`; undefined if the browser does not support sharing. */
export function tabs(name: string, tab: Tab): Tabs | undefined {
  const locks = globalThis.navigator?.locks;
  if (!locks || typeof BroadcastChannel !== "function") return;
  let channel: BroadcastChannel;
  try {
    channel = new BroadcastChannel(name);
  } catch {
    return; // forbidden by a privacy mode that isolates pages from each other
  }
  let leads = false;
  let ended = false;
  let release = () => {};
  /** The lock request that leads. A tab that steals the lock may steal it from itself, if it was granted at that moment. */
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
        // Locks are refused here (a sandboxed frame): lead, even if other tabs do.
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
