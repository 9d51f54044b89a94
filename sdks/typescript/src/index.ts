/** Atoll: hardened Linux sandboxes for AI agents. */

export type { components, operations, paths } from "./api.js";
export type { RetryPolicy } from "./calls.js";
export { Client, type ClientOptions, Volumes } from "./client.js";
export { Command, Commands, type ExecOptions, type Input, type Listener, type StartOptions, type WaitOptions } from "./commands.js";
export * from "./errors.js";
export { type Content, Files } from "./files.js";
export { CodeResult, CommandResult, Display, type Output } from "./results.js";
export { type CodeOptions, type CreateOptions, type InstallOptions, type Limits, Sandbox } from "./sandbox.js";
export { Snapshots } from "./snapshots.js";
