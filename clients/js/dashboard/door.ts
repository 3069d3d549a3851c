/** The token that opens the figures: kept by this tab while it is open, where the browser allows that, and nowhere else. */
const KEY = "herenow-operator";

export class Door {
  private held: string | null = null;

  get token(): string | null {
    try {
      return this.held ?? sessionStorage.getItem(KEY);
    } catch {
      return this.held;
    }
  }

  open(token: string): void {
    this.held = token;
    try {
      sessionStorage.setItem(KEY, token);
    } catch {
      // then it is kept until the page is left
    }
  }

  close(): void {
    this.held = null;
    try {
      sessionStorage.removeItem(KEY);
    } catch {
      // nothing was kept
    }
  }
}

/** Why it did not open, for who tried. */
export function refusal(code: string): string {
  switch (code) {
    case "forbidden":
      return "This token is a user’s. The figures need one with the scope service.";
    case "token_expired":
      return "This token has expired. Make a new one.";
    case "token_missing":
      return "";
    default:
      return "The server does not accept this token. Was it made with the secret of this server?";
  }
}
