/**
 * A refused or failed request. `code` is a public error code of the server, or `token_failed`, `signed_out`, `no_answer` or
 * `closed`.
 */
export class HerenowError extends Error {
  readonly code: string;
  constructor(code: string, message = code) {
    super(message);
    this.name = "HerenowError";
    this.code = code;
  }
}
