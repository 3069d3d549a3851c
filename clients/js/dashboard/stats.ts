/** The request `GET /api/v1/stats`, and the fields of its response that the dashboard shows. */
export interface Point {
  at: number;
  connections: number;
  online: number;
  busy: number;
  away: number;
  ledger_backlog: number;
  stale_views: number;
  changes: number;
  deliveries: number;
  refusals: number;
  conflicts: number;
  p50: number | null;
  p99: number | null;
}

export interface Process {
  worker: number;
  restarts: number;
  epoch: string;
  lease_held: boolean;
  lease_renewed_ago: number | null;
  connections: number;
  undecided: number;
  stale_shards: number;
  log_behind: number;
  log_heard_ago: number;
  loop_late: number;
  gives_up: number;
}

export interface Member {
  epoch: string;
  here: boolean;
  state: "well" | "overdue" | "dead" | "unknown";
  still_for: number | null;
}

export interface Trouble {
  what: string;
  detail: string;
  fix: string;
}

export interface Stats {
  version: string;
  now: number;
  workers: number;
  ready: boolean;
  draining: boolean;
  connections: number;
  streams: number;
  sessions: number;
  users: { online: number; busy: number; away: number };
  ledger_backlog: number;
  stale_views: number;
  per_second: Record<"changes" | "deliveries" | "frames" | "beats" | "refusals" | "conflicts" | "engine_errors" | "ledger_errors", number>;
  delivery: { p50: number | null; p99: number | null };
  refusals: Record<string, number>;
  closes: Record<string, number>;
  processes: Process[];
  members: Member[];
  targets: { target: string; viewers: number; deliveries: number }[];
  degraded: Trouble[];
  history: Point[];
}

/** There are no stats: `away` if the server does not respond or has an error, `token` if it refuses the token. */
export class NoAnswer extends Error {
  constructor(
    readonly why: "away" | "token",
    sentence: string,
    readonly code = "",
  ) {
    super(sentence);
  }
}

const PATIENCE = 5_000; // milliseconds: longer than a server waits for its own workers

export async function ask(since: number, token: string | null): Promise<Stats> {
  let answer: Response;
  try {
    answer = await fetch(`/api/v1/stats?since=${since}`, {
      headers: token === null ? {} : { authorization: `Bearer ${token}` },
      signal: AbortSignal.timeout(PATIENCE),
      cache: "no-store",
      credentials: "omit",
    });
  } catch {
    throw new NoAnswer("away", "The server does not answer.");
  }
  if (answer.ok) {
    return answer.json().catch(() => {
      throw new NoAnswer("away", "The connection was lost in the middle of the response.");
    });
  }
  const problem: { code?: string; detail?: string } = await answer.json().catch(() => ({}));
  if (answer.status === 401 || answer.status === 403) throw new NoAnswer("token", problem.detail ?? "", problem.code);
  throw new NoAnswer("away", problem.detail ?? `The server answers with status ${answer.status}.`);
}
