/** Something was refused. `code` is one of the server's, or `token_failed`, `no_answer`, `closed`. */
export class HerenowError extends Error {
  readonly code: string;
  constructor(code: string, message = code) {
    super(message);
    this.name = "HerenowError";
    this.code = code;
  }
}
