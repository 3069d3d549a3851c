/**
 * Hooks. A component that asks for somebody is a watcher like any other: they share one subscription, and it ends with
 * the last of them. On the server everybody is `unknown`.
 */
import { createContext, createElement, useCallback, useContext, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import type { ReactElement, ReactNode } from "react";
import type { Herenow } from "./herenow.js";
import { unknown } from "./roster.js";
import type { Choice, Id, Me, Place, Presence, State } from "./types.js";

const Context = createContext<Herenow | undefined>(undefined);

/** The client belongs to the application: it is not closed with the provider. */
export function HerenowProvider(props: { client: Herenow; children?: ReactNode }): ReactElement {
  return createElement(Context.Provider, { value: props.client }, props.children);
}

export function useHerenow(): Herenow {
  const here = useContext(Context);
  if (!here) throw new Error("There is no HerenowProvider above this component.");
  return here;
}

export function usePresence(user: Id): Presence {
  return usePresences([user])[0]!;
}

/** In the order asked. The same array as long as nobody in it changes. */
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
  /** Undefined until the server has said it. */
  me: Me | undefined;
  set(choice: Choice): Promise<void>;
  auto(): Promise<void>;
  clear(): Promise<void>;
}

export function useMyPresence(): MyPresence {
  const here = useHerenow();
  const me = useSyncExternalStore(here.me.on, here.me.get, nothing);
  return { me, set: here.me.set, auto: here.me.auto, clear: here.me.clear };
}

/** The connection: for a banner instead of wrong dots. */
export function useConnection(): State {
  const here = useHerenow();
  const subscribe = useCallback((changed: () => void) => here.onState(changed), [here]);
  return useSyncExternalStore(subscribe, () => here.state, () => CONNECTING);
}

/** Who types here, and what to call with every key of our own. `to`: a conversation with that person. */
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
