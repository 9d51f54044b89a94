// The agent: the part of the LangGraph Platform API that the console uses. These routes are not in the OpenAPI document;
// docs/agent.md and crates/front-langgraph say what they send.
import { send } from "./client";

/** A part of a message's content. */
export interface Block {
  type: string;
  text?: string;
  reasoning?: string;
  image_url?: { url: string };
  /** Of a piece: which block of the message it continues. */
  index?: number;
}

export type Content = string | Block[];

export interface ToolCall {
  id: string;
  name: string;
  args: Record<string, unknown>;
}

/** Arguments that are no JSON. */
export interface BrokenCall {
  id: string;
  name: string;
  args: string | null;
}

/** What a tool really did: the ids that lead to it. */
export interface Facts {
  sandbox_id?: string;
  exec_id?: string;
  cell_id?: string;
  operation_ids?: string[];
  duration_ms?: number;
  /** The call as the model wrote it, where a person had another one carried out in its place. */
  asked?: { name: string; args: Record<string, unknown> | string };
}

export interface Shown {
  type: string;
  data: string;
}

interface Said {
  id: string;
  content: Content;
}

export interface HumanMessage extends Said {
  type: "human";
}

export interface AiMessage extends Said {
  type: "ai";
  tool_calls: ToolCall[];
  invalid_tool_calls: BrokenCall[];
  response_metadata?: { model_name?: string; finish_reason?: string };
  usage_metadata?: { total_tokens: number } | null;
}

export interface ToolMessage extends Said {
  type: "tool";
  tool_call_id: string;
  name: string;
  status: "success" | "error";
  additional_kwargs?: { atoll?: Facts };
  /** Pictures, which are not in the content. */
  artifact?: { display_outputs: Shown[] } | null;
}

export interface SystemMessage extends Said {
  type: "system";
}

export type Message = HumanMessage | AiMessage | ToolMessage | SystemMessage;

/** A piece of a message that the model is writing. */
export interface MessageChunk extends Said {
  type: "AIMessageChunk";
  tool_call_chunks: { index: number; id: string | null; name: string | null; args: string }[];
}

/** A call that waits for approval. */
export interface ActionRequest {
  name: string;
  args: Record<string, unknown>;
  /** Why it waits. */
  description: string;
  tool_call_id: string;
}

export interface Interrupt {
  id: string;
  value: { action_requests: ActionRequest[] };
}

export interface Values {
  messages: Message[];
  __interrupt__?: Interrupt[];
}

export type ThreadStatus = "idle" | "busy" | "interrupted" | "error";

export interface ThreadItem {
  thread_id: string;
  updated_at: string;
  metadata: { title?: unknown };
  status: ThreadStatus;
}

export interface Thread extends ThreadItem {
  values: Values | null;
  /** By the checkpoint that waits. */
  interrupts: Record<string, Interrupt[]>;
  /** Why its last run failed. */
  error: string | null;
}

export interface Run {
  run_id: string;
  created_at: string;
  status: "pending" | "running" | "error" | "success" | "timeout" | "interrupted";
  kwargs: {
    input?: { messages?: { id?: string; content?: Content }[] } | null;
    command?: { resume?: unknown } | null;
  };
  usage: { iterations: number; total_tokens: number };
  stop_reason: string | null;
  error: string | null;
}

/** What a person says about a call. */
export type Decision =
  | { type: "approve" }
  | { type: "edit"; edited_action: { name: string; args: Record<string, unknown> } }
  | { type: "reject"; message: string };

interface ModelLayer {
  model: string | null;
  provider: string | null;
  base_url: string | null;
  supports_vision: boolean | null;
  context_tokens: number | null;
  has_api_key: boolean;
}

/** An owner's model as it applies, and what of it the owner set. The key only goes there; a hint says which one it is. */
export interface ModelSettings extends ModelLayer {
  api_key_hint: string | null;
  own: ModelLayer;
}

/** A request with a body in JSON, and its answer. */
export async function ask<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  const sent = body === undefined ? {} : { headers, body: JSON.stringify(body) };
  const response = await send(path, { method, signal, ...sent });
  const text = await response.text();
  return (text ? JSON.parse(text) : undefined) as T;
}
