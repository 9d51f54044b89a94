/** What can go wrong, as classes. An error of the server has the API's own code, and the field that it is about. */

import type { components } from "./api.js";
import type { CodeResult, CommandResult } from "./results.js";

/** The API's names of reasons; a newer server may have more. */
export type ErrorCode = components["schemas"]["ErrorCode"] | (string & {});

/** The base of every error of this package. */
export class AtollError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The server cannot be reached, or the connection broke and the request must not be sent twice. */
export class ConnectionFailedError extends AtollError {}

/** One wrong field of a request. */
export interface Problem {
  location: (string | number)[];
  message: string;
}

export interface ApiErrorInfo {
  code?: ErrorCode;
  status?: number;
  details?: Record<string, unknown>;
  problems?: Problem[];
  requestId?: string | undefined;
  retryAfter?: number | undefined;
}

/** The server refused a request, or could not carry it out. */
export class ApiError extends AtollError {
  /** The API's name of the reason, such as `not_found`. */
  readonly code: ErrorCode;
  /** The HTTP status; 0 where the error came within a stream of events. */
  readonly status: number;
  readonly details: Record<string, unknown>;
  /** Each wrong field of the request. */
  readonly problems: Problem[];
  /** The `X-Request-Id` of the answer, where the server or a proxy before it sends one. */
  readonly requestId: string | undefined;
  /** Seconds to wait before the same request may succeed. */
  readonly retryAfter: number | undefined;

  constructor(message: string, info: ApiErrorInfo = {}) {
    super(message);
    this.code = info.code ?? "internal";
    this.status = info.status ?? 0;
    this.details = info.details ?? {};
    this.problems = info.problems ?? [];
    this.requestId = info.requestId;
    this.retryAfter = info.retryAfter;
  }

  /** The field that the error is about. */
  get field(): string | undefined {
    const [problem] = this.problems;
    if (problem) return problem.location.slice(1).join(".") || undefined;
    return typeof this.details["field"] === "string" ? this.details["field"] : undefined;
  }
}

export class InvalidArgumentError extends ApiError {}
/** No key, or one that is not valid. */
export class AuthenticationError extends ApiError {}
/** There is no such thing, or it is another owner's. */
export class NotFoundError extends ApiError {}
export class AlreadyExistsError extends ApiError {}
/** The sandbox is stopped or destroyed, or the command has ended. */
export class NotRunningError extends ApiError {}
export class ConflictError extends ApiError {}
/** A path that leads out of the sandbox, or something that is no file or no folder. */
export class PathError extends ApiError {}
export class PermissionDeniedError extends ApiError {}
/** Too many requests, too many sandboxes, or no room on the machine; see `retryAfter`. */
export class LimitExceededError extends ApiError {}
export class DiskFullError extends ApiError {}
export class TooLargeError extends ApiError {}
/** A command could not be started: its working directory or its user does not exist. */
export class ExecFailedError extends ApiError {}
/** The sandbox's container, or the kernel, died while it was needed. */
export class SandboxDiedError extends ApiError {}
/** A rollback of the sandbox ended what was running. */
export class RolledBackError extends ApiError {}
export class UnsupportedError extends ApiError {}
/** The URL is that of the server's gRPC endpoint, which has no word for what was asked. */
export class GrpcEndpointError extends UnsupportedError {
  constructor(url: string) {
    const offered = "create, exec, writeFile, readFile, runPython, pipInstall and destroy";
    const rest = "for the rest give the URL of the server's HTTP API, such as http://127.0.0.1:7300";
    super(`${url} is a gRPC endpoint, which offers ${offered}: ${rest}`, { code: "unsupported" });
  }
}
/** A part of the server does not answer at the moment. */
export class UnavailableError extends ApiError {}
export class ServerTimeoutError extends ApiError {}

/** A command that was run with `check` failed; `result` is how it went. */
export class CommandFailedError extends AtollError {
  readonly result: CommandResult;
  constructor(result: CommandResult) {
    super(result.summary());
    this.result = result;
  }
}

/** The same, where its time was over. */
export class CommandTimeoutError extends CommandFailedError {}

/** An installation that was asked for with `check` failed; `result` has what the package manager said. */
export class InstallFailedError extends AtollError {
  readonly result: components["schemas"]["InstalledItem"];
  constructor(result: components["schemas"]["InstalledItem"]) {
    super(`the packages are not installed: ${result.stderr.trim().slice(-500)}`);
    this.result = result;
  }
}

/** Code that was run with `check` failed; `result` is how it went. */
export class CodeFailedError extends AtollError {
  readonly result: CodeResult;
  constructor(result: CodeResult) {
    super(result.summary());
    this.result = result;
  }
}

const BY_CODE: Record<string, typeof ApiError> = {
  invalid_argument: InvalidArgumentError,
  not_found: NotFoundError,
  already_exists: AlreadyExistsError,
  not_running: NotRunningError,
  conflict: ConflictError,
  directory_not_empty: ConflictError,
  path_outside_root: PathError,
  special_file: PathError,
  is_a_directory: PathError,
  not_a_directory: PathError,
  permission_denied: PermissionDeniedError,
  read_only: PermissionDeniedError,
  limit_exceeded: LimitExceededError,
  disk_full: DiskFullError,
  too_large: TooLargeError,
  exec_failed: ExecFailedError,
  container_died: SandboxDiedError,
  kernel_died: SandboxDiedError,
  rolled_back: RolledBackError,
  unsupported: UnsupportedError,
  unavailable: UnavailableError,
  bad_gateway: UnavailableError,
  version_mismatch: UnavailableError,
  timeout: ServerTimeoutError,
};

export function errorOfCode(code: string, message: string, info: ApiErrorInfo = {}): ApiError {
  return new (BY_CODE[code] ?? ApiError)(message, { ...info, code });
}

/** The error that an answer tells of. A proxy's page is no error of the API, and has the code of its status. */
export function errorOfResponse(status: number, headers: Headers, body: string): ApiError {
  const retryAfter = Number.parseFloat(headers.get("retry-after") ?? "");
  const info: ApiErrorInfo = {
    status,
    requestId: headers.get("x-request-id") ?? undefined,
    retryAfter: Number.isNaN(retryAfter) ? undefined : retryAfter,
  };
  let answer: { detail?: { loc: (string | number)[]; msg: string }[]; error?: Record<string, unknown> } | null = null;
  try {
    answer = JSON.parse(body);
  } catch {
    // Not from the API.
  }
  if (Array.isArray(answer?.detail)) {
    info.problems = answer.detail.map(({ loc, msg }) => ({ location: loc, message: msg }));
    const message = info.problems.map((problem) => problem.message).join("; ");
    return errorOfCode("invalid_argument", message || "the request is not valid", info);
  }
  const error = answer?.error;
  if (!error) {
    const code = status === 502 || status === 503 ? "unavailable" : status === 504 ? "timeout" : "internal";
    return errorOfCode(code, `the server answered ${status} without a reason`, info);
  }
  const [code, message] = [String(error["code"]), String(error["message"])];
  info.details = (error["details"] as Record<string, unknown> | undefined) ?? {};
  return status === 401 ? new AuthenticationError(message, { ...info, code }) : errorOfCode(code, message, info);
}
