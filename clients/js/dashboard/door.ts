/** The operator's token, kept in `sessionStorage` of this tab; where that is forbidden, in memory. */
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
      // storage is forbidden: the token stays in memory
    }
  }

  close(): void {
    this.held = null;
    try {
      sessionStorage.removeItem(KEY);
    } catch {
      // storage is forbidden: nothing was stored
    }
  }
}

/** The sentence to show for an error code that refused the token. */
export function refusal(code: string): string {
  switch (code) {
    case "forbidden":
      return "This is a user token. The page needs one with the scope read.";
    case "scope_missing":
      return "This token lacks the scope read, which the page needs.";
    case "token_expired":
      return "This token has expired. Make a new one.";
    case "token_missing":
      return "";
    default:
      return "The server does not accept this token. Was it made with the secret of this server?";
  }
}
