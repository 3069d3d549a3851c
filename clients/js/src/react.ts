/**
 * React hooks. Components that use the same user share one subscription, which ends with the last of them. In server-side
 * rendering every status is `unknown`.
 */
import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { ReactElement, ReactNode } from "react";
import type { Herenow } from "./herenow.js";
import { unknown } from "./roster.js";
import type { Choice, Id, Me, Place, Presence, State } from "./types.js";

const Context = createContext<Herenow | undefined>(undefined);

/** Provides the client to the hooks below it. The application owns the client: unmounting does not close it. */
export function HerenowProvider(props: { client: Herenow; children?: ReactNode }): ReactElement {
  return createElement(Context.Provider, { value: props.client }, props.children);
}

/** The client of the `HerenowProvider` above; throws without one. */
export function useHerenow(): Herenow {
  const here = useContext(Context);
  if (!here) throw new Error("There is no HerenowProvider above this component.");
  return here;
}

/** Watch a user; its status is `unknown` until the server has sent it. */
export function usePresence(user: Id): Presence {
  return usePresences([user])[0]!;
}

/** Watch users, in the given order. The array stays the same object until one of the presences changes. */
export function usePresences(users: readonly Id[]): readonly Presence[] {
  const here = useHerenow();
  const key = JSON.stringify(users);
  const store = useMemo(() => {
    const ids: Id[] = JSON.parse(key);
    let now: readonly Presence[] = ids.map((user) => unknown(String(user)));
    const look = () => (now = ids.map((user) => here.get(user)));
    return {
      subscribe: (changed: () => void) => {
        const stop = here.watch(ids, () => (look(), changed()));
        look();
        return stop;
      },
      now: () => now,
    };
  }, [here, key]);
  return useSyncExternalStore(store.subscribe, store.now, store.now);
}

export interface MyPresence {
  /** The user's own presence; undefined until the server has sent it. */
  me: Me | undefined;
  /** Set the user's mode, custom status, or both: see `Herenow.me.set`. */
  set(choice: Choice): Promise<void>;
  /** Return to the automatic mode: the status follows the devices' activity. The custom status stays. */
  auto(): Promise<void>;
  /** Clear the custom status; the mode stays. */
  clear(): Promise<void>;
}

/** The user's own presence, and functions that change it. */
export function useMyPresence(): MyPresence {
  const here = useHerenow();
  const me = useSyncExternalStore(here.me.on, here.me.get, nothing);
  return { me, set: here.me.set, auto: here.me.auto, clear: here.me.clear };
}

/** The state of the connection, for example for a banner while it is interrupted. */
export function useConnection(): State {
  const here = useHerenow();
  const subscribe = useCallback((changed: () => void) => here.onState(changed), [here]);
  return useSyncExternalStore(subscribe, () => here.state, () => CONNECTING);
}

/**
 * `typing` lists the users that type in the room, or the user `to` if it types to this user. Call `type()` on every
 * keystroke of this user, `type(false)` when the message is sent.
 */
export function useTyping(place: Place): { typing: readonly string[]; type: (typing?: boolean) => void } {
  const here = useHerenow();
  const [typing, setTyping] = useState<readonly string[]>([]);
  const key = JSON.stringify(place);
  useEffect(() => {
    const where: { to?: Id; room?: Id } = JSON.parse(key);
    const close = where.room !== undefined ? here.open(where.room) : here.watch([where.to!], () => {});
    const stop = here.onTyping((event) => {
      const meant = where.room !== undefined ? event.room === String(where.room) : event.to !== undefined && event.user === String(where.to);
      if (meant) setTyping((now) => [...now.filter((user) => user !== event.user), ...(event.typing ? [event.user] : [])]);
    });
    return () => {
      stop();
      close();
      setTyping([]);
    };
  }, [here, key]);
  const type = useCallback((typing = true) => here.typing({ ...(JSON.parse(key) as Place), typing }), [here, key]);
  return { typing, type };
}

const CONNECTING: State = { phase: "connecting" };
const nothing = () => undefined;
