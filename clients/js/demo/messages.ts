/** The chat messages. A presence server does not carry them: they go from tab to tab by BroadcastChannel, kept in memory. */

export interface Message {
  from: string;
  /** A user, or `#lobby`. */
  to: string;
  text: string;
  at: number;
}

export class Messages {
  #talks = new Map<string, Message[]>();
  #me: string;
  #channel: BroadcastChannel | undefined;

  /** `heard` is called with the conversation and the message for each message received. */
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
      // channels are forbidden here: messages stay in this tab
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

  /** The conversation that a message belongs to; undefined if it is not for this user. */
  #talk({ from, to }: Message): string | undefined {
    if (to.startsWith("#") || from === this.#me) return to;
    return to === this.#me ? from : undefined;
  }

  #keep(talk: string, message: Message): void {
    this.#talks.set(talk, [...this.of(talk), message].slice(-200));
  }
}
