/** Converts field names from snake_case to camelCase: `last_seen` becomes `lastSeen`. Unknown fields are kept. */

const SHORTER: Record<string, string> = { user_id: "user", custom_status: "custom" };

export function camel(value: any): any {
  if (Array.isArray(value)) return value.map(camel);
  if (!value || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [SHORTER[name] ?? name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()), camel(each)]));
}
