// One shape for every error that a request ends with.
import type { components } from "./schema";

type Wire = Partial<components["schemas"]["Error"] & components["schemas"]["ValidationError"]>;

/** As the routes of the agent write it, which are not in the OpenAPI document. */
interface AgentWire {
  error: string;
  message: string;
}

const isAgentWire = (body: unknown): body is AgentWire =>
  typeof body === "object" && body !== null && "error" in body && typeof body.error === "string";

/** What the server refused, or why it could not be asked. */
export class ApiError extends Error {
  constructor(
    message: string,
    /** 0: no answer came. */
    readonly status: number,
    readonly code: string,
    /** What else the server says, by name: `field`, `asked`, `allowed`, … */
    readonly details: Record<string, unknown> = {},
    /** What is wrong with the fields of the request, by name. */
    readonly fields: Record<string, string> = {},
  ) {
    super(message);
  }

  get isUnreachable(): boolean {
    return this.status === 0 || this.status === 502;
  }

  get isSignedOut(): boolean {
    return this.status === 401;
  }
}

/** The server names a field of a list or of a group by its place: `volumes[0].path`, `filesystem.blocked`. */
export function fieldError(fields: Record<string, string>, name: string): string | undefined {
  const found = Object.keys(fields).find((field) => field.split(/[.[]/).includes(name));
  return found && fields[found];
}

/** Reads the body of a refusal. */
export function errorOf(status: number, body: unknown): ApiError {
  if (isAgentWire(body)) return new ApiError(body.message, status, body.error);
  const wire = (typeof body === "object" && body !== null ? body : {}) as Wire;
  if (wire.error) {
    const details: Record<string, unknown> = wire.error.details;
    const field = details.field;
    const fields = typeof field === "string" ? { [field]: wire.error.message } : {};
    return new ApiError(wire.error.message, status, wire.error.code, details, fields);
  }
  if (wire.detail) {
    const fields: Record<string, string> = {};
    for (const one of wire.detail) fields[one.loc.slice(1).join(".")] = one.msg;
    const message = wire.detail.map((one) => one.msg).join("; ");
    return new ApiError(message, status, "invalid_argument", {}, fields);
  }
  return new ApiError(`the server answered ${status}`, status, "unknown");
}

export function unreachable(): ApiError {
  return new ApiError("the server does not answer", 0, "unreachable");
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(error instanceof Error ? error.message : String(error), 0, "unknown");
}
