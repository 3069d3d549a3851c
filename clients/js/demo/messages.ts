/**
 * What people say to each other. It is no business of a presence server, so it stays in this browser: a channel from tab
 * to tab, kept in memory.
 */

export interface Message {
  from: string;
  /** A person, or `#lobby`. */
  to: string;
  text: string;
  at: number;
}

export class Messages {
  #talks = new Map<string, Message[]>();
  #me: string;
  #channel: BroadcastChannel | undefined;

  /** `heard` is given the conversation that has something new. */
  constructor(me: string, heard: (talk: string, message: Message) => void) {
    this.#me = me;
    try {
      this.#channel = new BroadcastChannel("herenow demo");
      this.#channel.onmessage = ({ data }) => {
        const talk = this.#talk(data);
        if (talk === undefined) return;
        this.#keep(talk, data);
        heard(talk, data);
      };
    } catch {
      // Forbidden here: then everybody talks to themselves.
    }
  }

  of(talk: string): readonly Message[] {
    return this.#talks.get(talk) ?? [];
  }

  send(to: string, text: string): void {
    const message = { from: this.#me, to, text, at: Date.now() };
    this.#keep(to, message);
    this.#channel?.postMessage(message);
  }

  /** Whose conversation it belongs to; undefined: not ours. */
  #talk({ from, to }: Message): string | undefined {
    if (to.startsWith("#") || from === this.#me) return to;
    return to === this.#me ? from : undefined;
  }

  #keep(talk: string, message: Message): void {
    this.#talks.set(talk, [...this.of(talk), message].slice(-200));
  }
}
