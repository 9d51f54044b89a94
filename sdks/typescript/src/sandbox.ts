/** A sandbox. */

import type { components } from "./api.js";
import { type Call, defined, get, keyed, segment } from "./calls.js";
import { Client, type ClientOptions } from "./client.js";
import { Command, Commands, type ExecOptions, type Listener } from "./commands.js";
import {
  AtollError,
  GrpcEndpointError,
  InstallFailedError,
  InvalidArgumentError,
  NotFoundError,
  PermissionDeniedError,
} from "./errors.js";
import { CellSource } from "./events.js";
import { type Content, Files } from "./files.js";
import type { GrpcSession } from "./grpc.js";
import { type Packages, versions } from "./packages.js";
import { type CodeResult, type CommandResult, type Display } from "./results.js";
import { Snapshots } from "./snapshots.js";

type Schemas = components["schemas"];

/** What a new sandbox or a fork may have. */
export interface Limits {
  memoryMb?: number;
  cpuCores?: number;
  diskMb?: number;
  processes?: number;
  env?: Record<string, string>;
  secrets?: Record<string, string>;
  labels?: Record<string, string>;
  idleTimeoutSeconds?: number;
  maxLifetimeSeconds?: number;
  autoSnapshot?: "off" | "before_exec" | "before_run";
}

/** What a new sandbox may have. */
export interface CreateOptions extends Limits {
  image?: string;
  profile?: "default" | "tools" | "root" | "build";
  /** Hosts that it may reach, and nothing else. Without any, and without `egress` and `networkEnabled`, it reaches the hosts
   * of package managers and GitHub, or nothing where the key's tier has no network. */
  allowedHosts?: string[];
  /** The whole policy, presets such as `python` included; goes before `allowedHosts`. */
  egress?: Schemas["EgressPolicy"];
  /** False: it reaches nothing. True: what the key's tier allows. */
  networkEnabled?: boolean;
  /** One sandbox for each owner, key and image: asking again gives the same. */
  sessionKey?: string;
  tenantId?: string;
  volumes?: Schemas["Attachment"][];
  filesystem?: Schemas["Filesystem"];
  /** Packages by language, versions by name; an empty version is the latest. */
  dependencies?: Partial<Record<"python" | "node" | "r", Record<string, string>>>;
  signal?: AbortSignal;
}

export interface CodeOptions {
  language?: "python" | "node" | "r" | "bash";
  /** In seconds; 30 where nothing is said. It interrupts the code and keeps the variables. */
  timeout?: number;
  onStdout?: Listener<string>;
  onStderr?: Listener<string>;
  onDisplay?: Listener<Display>;
  /** Throw CodeFailedError where the code fails. */
  check?: boolean;
  /** Interrupts the code when it aborts. */
  signal?: AbortSignal;
}

export interface InstallOptions {
  /** In seconds, counted by the server. */
  timeout?: number;
  /** Throw InstallFailedError where a package is not installed. */
  check?: boolean;
  signal?: AbortSignal;
}

const INTERRUPT_MS = 5000;
/** What a sandbox may reach whose create names nothing. */
const USUAL_PRESETS = ["python", "node", "rust", "github"];

function limitsOf(options: Limits): Record<string, unknown> {
  return defined({
    memory_mb: options.memoryMb,
    cpu_cores: options.cpuCores,
    disk_mb: options.diskMb,
    processes: options.processes,
    env_vars: options.env,
    secrets: options.secrets,
    labels: options.labels,
    idle_timeout_seconds: options.idleTimeoutSeconds,
    max_lifetime_seconds: options.maxLifetimeSeconds,
    auto_snapshot: options.autoSnapshot,
  });
}

function createBody(options: CreateOptions): Record<string, unknown> {
  const { allowedHosts } = options;
  const egress = options.egress ?? (allowedHosts?.length ? { mode: "allowlist", allow: allowedHosts } : undefined);
  return {
    ...limitsOf(options),
    ...defined({
      image: options.image,
      profile: options.profile,
      egress,
      network_enabled: options.networkEnabled,
      session_key: options.sessionKey,
      tenant_id: options.tenantId,
      volumes: options.volumes,
      filesystem: options.filesystem,
      dependencies: options.dependencies,
    }),
  };
}

/**
 * A sandbox.
 *
 *     const sandbox = new Sandbox("http://127.0.0.1:7300");
 *     await sandbox.create();
 *     const result = await sandbox.exec("echo hello");
 *     await sandbox.destroy();
 *
 * or `await using sandbox = await Sandbox.create()`, which destroys it at the end of the block.
 */
export class Sandbox {
  readonly client: Client;
  #record: Schemas["Sandbox"] | undefined;
  /** Where the URL is that of the server's gRPC endpoint. */
  #session: GrpcSession | undefined;
  #parts: { commands: Commands; files: Files; snapshots: Snapshots } | undefined;
  #temporary = false;

  /** `server` is a URL, the options of a client, or a client that is shared. */
  constructor(server: string | ClientOptions | Client = {}, options: ClientOptions = {}) {
    if (server instanceof Client) this.client = server;
    else this.client = new Client(typeof server === "string" ? { ...options, baseUrl: server } : server);
  }

  /** Makes a sandbox. */
  static async create(options: CreateOptions & ClientOptions & { client?: Client } = {}): Promise<Sandbox> {
    return new Sandbox(options.client ?? options).create(options);
  }

  /** Finds a sandbox by its id. */
  static async connect(id: string, options: ClientOptions & { client?: Client } = {}): Promise<Sandbox> {
    const sandbox = new Sandbox(options.client ?? options);
    try {
      sandbox.#is(await sandbox.client.value<Schemas["Sandbox"]>(get(`sandboxes/${segment(id)}`)));
    } catch (error) {
      if (!(error instanceof GrpcEndpointError)) throw error;
      sandbox.#session = await (await import("./grpc.js")).GrpcSession.connect(sandbox.client, id);
    }
    return sandbox;
  }

  /** Makes the sandbox that this object then stands for, in the place of one that it made before. */
  async create(options: CreateOptions = {}): Promise<this> {
    const former = this.#temporary ? this.#ending() : undefined;
    try {
      const record = await this.#make(options);
      this.#parts = undefined;
      this.#is(record);
    } catch (error) {
      if (!(error instanceof GrpcEndpointError)) throw error;
      this.#session = await (await import("./grpc.js")).GrpcSession.create(this.client, options);
    }
    this.#temporary = options.sessionKey === undefined;
    await former?.();
    return this;
  }

  async #make(options: CreateOptions): Promise<Schemas["Sandbox"]> {
    const make = (egress: CreateOptions["egress"]) => {
      const body = createBody(egress ? { ...options, egress } : options);
      return this.client.value<Schemas["Sandbox"]>(keyed("sandboxes", body), options.signal);
    };
    if (options.egress || options.allowedHosts?.length || options.networkEnabled !== undefined) return make(undefined);
    try {
      return await make({ mode: "allowlist", presets: USUAL_PRESETS });
    } catch (error) {
      // A default is taken as far as it goes: a tier may have no network, and a machine not every package manager.
      if (error instanceof PermissionDeniedError && error.field === "egress.mode") return make(undefined);
      if (!(error instanceof InvalidArgumentError && error.field === "egress.presets")) throw error;
      const asked = get("egress/presets", { image: options.image });
      const known = await this.client.value<Schemas["PresetInfo"][]>(asked, options.signal);
      const usual = USUAL_PRESETS.filter((name) => known.some((preset) => preset.name === name && preset.entries.length));
      return make(usual.length ? { mode: "allowlist", presets: usual } : undefined);
    }
  }

  #is(record: Schemas["Sandbox"]): Schemas["Sandbox"] {
    this.#record = record;
    const path = `sandboxes/${record.id}`;
    this.#parts ??= {
      commands: new Commands(this.client, path),
      files: new Files(this.client, path),
      snapshots: new Snapshots(this.client, path),
    };
    return record;
  }

  #made<T>(part: T | undefined): T {
    if (this.#session) throw new GrpcEndpointError(this.client.baseUrl);
    if (part === undefined) throw new AtollError("there is no sandbox yet: call create() first");
    return part;
  }

  /** The record as it was when it was last asked for; see `refresh`. */
  get record(): Schemas["Sandbox"] {
    return this.#made(this.#record);
  }

  get id(): string {
    return this.#session?.id ?? this.record.id;
  }

  get commands(): Commands {
    return this.#made(this.#parts).commands;
  }

  get files(): Files {
    return this.#made(this.#parts).files;
  }

  get snapshots(): Snapshots {
    return this.#made(this.#parts).snapshots;
  }

  // -- The short forms.

  /** Runs a command to its end; see `commands.run`. */
  exec(command: string | string[], options?: ExecOptions): Promise<CommandResult> {
    return this.#session?.exec(command, options) ?? this.commands.run(command, options);
  }

  /** Starts a command in the background; see `commands.start`. */
  start(...command: Parameters<Commands["start"]>): Promise<Command> {
    return this.commands.start(...command);
  }

  writeFile(path: string, content: Content): Promise<void> {
    return this.#session?.writeFile(path, content) ?? this.files.write(path, content);
  }

  /** A file as text; `files.readBytes` has the bytes. */
  readFile(path: string): Promise<string> {
    return this.#session?.readFile(path) ?? this.files.read(path);
  }

  /** Runs Python code in an interpreter that keeps its variables; see `runCode`. Over gRPC it keeps none. */
  runPython(code: string, options: Omit<CodeOptions, "language"> = {}): Promise<CodeResult> {
    if (this.#session) return this.#session.runPython(code, options);
    return this.runCode(code, { ...options, language: "python" });
  }

  /** Installs Python packages through the egress policy: `["requests==2.32.3", "uvicorn[standard]"]`, or versions by name. */
  pipInstall(packages: Packages, options: InstallOptions = {}): Promise<Schemas["InstalledItem"]> {
    return this.install(packages, { ...options, language: "python" });
  }

  /** Installs packages with pip, npm or R's installer, through the egress policy. */
  async install(
    packages: Packages,
    options: InstallOptions & { language?: "python" | "node" | "r" } = {},
  ): Promise<Schemas["InstalledItem"]> {
    const { language = "python", check, ...rest } = options;
    const session = language === "python" ? this.#session : undefined;
    const installed = await (session?.pipInstall(packages, rest) ?? this.#install(language, packages, rest));
    if (check && !installed.success) throw new InstallFailedError(installed);
    return installed;
  }

  #install(language: string, packages: Packages, options: InstallOptions): Promise<Schemas["InstalledItem"]> {
    // Node's fetch waits 300 seconds for an answer.
    const json = { language, packages: versions(language, packages), timeout: options.timeout ?? 240 };
    return this.client.value(keyed(`${this.#path}/dependencies`, json), options.signal);
  }

  /**
   * Runs code in the default kernel of a language, which keeps its variables. It is run once, also when the connection
   * breaks or the server is restarted meanwhile.
   */
  async runCode(code: string, options: CodeOptions = {}): Promise<CodeResult> {
    const body = defined({ code, language: options.language ?? "python", timeout: options.timeout, stream: true });
    const source = new CellSource(keyed(`${this.#path}/run`, body));
    try {
      for await (const event of this.client.follow(source, options.signal)) {
        if ("display" in event) await options.onDisplay?.(event.display);
        else await (event.stream === "stdout" ? options.onStdout : options.onStderr)?.(event.text);
      }
    } catch (error) {
      await this.#interrupt(source);
      throw error;
    }
    const result = source.result();
    return options.check ? result.check() : result;
  }

  /** Interrupts a cell whose caller is gone. Its kernel is found by it: events do not name the kernel. */
  async #interrupt(source: CellSource): Promise<void> {
    if (source.ended || source.cellId === undefined) return;
    const limit = AbortSignal.timeout(INTERRUPT_MS);
    try {
      for (const kernel of await this.client.value<Schemas["KernelItem"][]>(get(`${this.#path}/kernels`), limit)) {
        if (kernel.cell_id !== source.cellId) continue;
        await this.client.done({ method: "POST", path: `${this.#path}/kernels/${kernel.kernel_id}/interrupt` }, limit);
      }
    } catch (error) {
      if (!(error instanceof AtollError || limit.aborted)) throw error;
    }
  }

  // -- Its life.

  get #path(): string {
    return `sandboxes/${this.record.id}`;
  }

  /** Makes another sandbox with the files of this one, as they are now or were in a snapshot (its id or label). */
  async fork(options: Limits & { snapshot?: string } = {}): Promise<Sandbox> {
    const snapshot = options.snapshot === undefined ? undefined : await this.snapshots.idOf(options.snapshot);
    const body = { ...limitsOf(options), ...defined({ snapshot }) };
    const other = new Sandbox(this.client);
    other.#is(await this.client.value<Schemas["Sandbox"]>(keyed(`${this.#path}/fork`, body)));
    other.#temporary = true;
    return other;
  }

  async refresh(): Promise<Schemas["Sandbox"]> {
    return this.#is(await this.client.value<Schemas["Sandbox"]>(get(this.#path)));
  }

  /** Freezes every process where it is. The next request that needs the sandbox resumes it. */
  pause(): Promise<Schemas["Sandbox"]> {
    return this.#turn("pause");
  }

  resume(): Promise<Schemas["Sandbox"]> {
    return this.#turn("resume");
  }

  /** Ends its processes and keeps its files. */
  stop(): Promise<Schemas["Sandbox"]> {
    return this.#turn("stop");
  }

  async #turn(what: string): Promise<Schemas["Sandbox"]> {
    const call: Call = { method: "POST", path: `${this.#path}/${what}`, safe: true };
    return this.#is(await this.client.value<Schemas["Sandbox"]>(call));
  }

  /** Destroys the sandbox and its files. One that is gone already is no error. */
  async destroy(): Promise<void> {
    await this.#ending()();
  }

  /** What destroys the sandbox that this object stands for now. */
  #ending(): () => Promise<void> {
    const session = this.#session;
    if (session) return () => session.destroy();
    if (!this.#record) return async () => {};
    const call: Call = { method: "DELETE", path: this.#path, safe: true };
    return () =>
      this.client.done(call).catch((error: unknown) => {
        if (!(error instanceof NotFoundError)) throw error;
      });
  }

  /** `await using` destroys what `create` or `fork` made, unless it has a session key. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#temporary) await this.destroy();
  }
}
