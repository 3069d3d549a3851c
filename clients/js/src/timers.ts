/** Named timers: setting one cancels the earlier one of the same name, and `clear` cancels all. */

const LONGEST = 2e9; // ms; setTimeout fires at once for delays of more than 31 bits

export class Timers {
  #waiting = new Map<string, ReturnType<typeof setTimeout>>();

  in(wait: number, name: string, then: () => void): void {
    this.cancel(name);
    const timer = setTimeout(() => {
      this.#waiting.delete(name);
      then();
    }, Math.min(wait, LONGEST));
    this.#waiting.set(name, timer);
  }

  has(name: string): boolean {
    return this.#waiting.has(name);
  }

  cancel(name: string): void {
    clearTimeout(this.#waiting.get(name));
    this.#waiting.delete(name);
  }

  clear(): void {
    for (const name of this.#waiting.keys()) this.cancel(name);
  }
}
