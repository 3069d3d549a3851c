/** An application's token endpoint on a real port; the test chooses its answers. */
import { createServer } from "node:http";

export const HTML = { body: "<!doctype html><title>502</title><p>nginx. Please try again later.</p>", type: "text/html" };
export const HANG = "hang";
export const RESET = "reset";

/** `answers` are used up one by one, the last one for all further requests: `{ status, body, type }`, `HANG` or `RESET`. */
export async function endpoint(t, ...answers) {
  const server = createServer((request, response) => {
    made.requests.push(request);
    const answer = made.answers.length > 1 ? made.answers.shift() : made.answers[0];
    if (answer === HANG) return;
    if (answer === RESET) return request.socket.destroy();
    const { status = 200, body = "", type = "text/plain" } = typeof answer === "function" ? answer() : answer;
    response.writeHead(status, { "content-type": type, connection: "close" }).end(body);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => (server.closeAllConnections(), server.close()));
  const made = { answers, requests: [], url: `http://127.0.0.1:${server.address().port}/presence-token` };
  return made;
}

/** Let the real network work, whatever the mocked time is, until `holds` is true. */
export async function eventually(holds, what) {
  for (let turn = 0; turn < 200_000; turn++) {
    if (holds()) return;
    await new Promise((resolve) => setImmediate(resolve));
  }
  throw new Error(`waited in vain for ${what}`);
}
