// What a run that is under way has told so far. It is a value of the query cache beside the thread itself, so it stays when
// another page is looked at; a stream that is read again from its beginning leads to the same.
import type { QueryClient } from "@tanstack/react-query";
import { queryOptions } from "@tanstack/react-query";
import type { Interrupt, Message, MessageChunk, ToolMessage, Values } from "@/api/agent";
import { LOCAL } from "@/api/queries";
import type { SseEvent } from "@/api/sse";
import { keep, type Piece } from "@/components/output-box";
import type { Part } from "./text";

/** A message that the model is writing. */
export interface Pending {
  id: string;
  /** By their numbers in the message; calls of tools have numbers, too. */
  parts: Part[];
  calls: { id: string; name: string; args: string }[];
}

export interface Live {
  /** The run that is followed. */
  run?: string;
  /** A request for one is on its way. */
  starting?: boolean;
  /** The conversation as the run told it last. */
  messages?: Message[];
  interrupts?: Interrupt[];
  /** When the two above came. */
  at: number;
  /** States with fewer messages than this are older than what is known. */
  floor: number;
  pending?: Pending;
  /** What tools print, by call. */
  output: Record<string, Piece[]>;
  /** The arguments of the tools that are at work, by call. */
  working: Record<string, Record<string, unknown>>;
  ended?: { stop?: string; error?: { code: string; message: string } };
}

export const IDLE: Live = { at: 0, floor: 0, output: {}, working: {} };

export const live = (thread: string) =>
  queryOptions<Live>({
    queryKey: ["live", thread],
    queryFn: () => IDLE,
    initialData: IDLE,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
    meta: LOCAL,
  });

export function change(client: QueryClient, thread: string, to: (before: Live) => Live): void {
  client.setQueryData<Live>(live(thread).queryKey, (before) => to(before ?? IDLE));
}

/** Before the first event is read: what is half known comes again. */
export const reading = (before: Live): Live => ({
  ...before,
  pending: undefined,
  ended: undefined,
  floor: before.messages?.length ?? 0,
});

/** What became of it by an event. */
export function after(before: Live, event: SseEvent): Live {
  if (!event.data) return before;
  const data: unknown = JSON.parse(event.data);
  switch (event.kind) {
    case "metadata":
      // What was half written when the server ended is written anew.
      return { ...before, pending: undefined };
    case "values":
      return withValues(before, data as Values);
    case "messages":
      return withMessage(before, (data as [MessageChunk | ToolMessage])[0]);
    case "custom":
      return withProgress(before, data as Progress);
    case "error": {
      const { error, message } = data as { error: string; message: string };
      return { ...before, working: {}, ended: { error: { code: error, message } } };
    }
    case "end":
      return { ...before, working: {}, ended: { stop: (data as { stop_reason?: string }).stop_reason } };
    default:
      return before;
  }
}

function withValues(before: Live, { messages, __interrupt__: interrupts }: Values): Live {
  if (messages.length < before.floor) return before;
  const whole = messages.some((message) => message.id === before.pending?.id);
  return { ...before, messages, interrupts, pending: whole ? undefined : before.pending };
}

function withMessage(before: Live, message: MessageChunk | ToolMessage): Live {
  if (message.type === "AIMessageChunk") return { ...before, pending: grown(before.pending, message) };
  const all = before.messages ?? [];
  const known = all.some((each) => each.type === "tool" && each.tool_call_id === message.tool_call_id);
  return known ? before : { ...before, messages: [...all, message] };
}

function grown(before: Pending | undefined, chunk: MessageChunk): Pending {
  // A model that is asked again, because its provider failed, begins another message.
  const same = before?.id === chunk.id ? before : undefined;
  const parts = [...(same?.parts ?? [])];
  const calls = [...(same?.calls ?? [])];
  const add = (at: number, type: Part["type"], text: string) => {
    parts[at] = { type, text: (parts[at]?.text ?? "") + text };
  };
  if (typeof chunk.content === "string") {
    if (chunk.content) {
      const last = parts.length - 1;
      add(parts[last]?.type === "text" ? last : last + 1, "text", chunk.content);
    }
  } else {
    for (const block of chunk.content) {
      const kind = block.type === "reasoning" ? "reasoning" : "text";
      add(block.index ?? parts.length, kind, block.reasoning ?? block.text ?? "");
    }
  }
  for (const { index, id, name, args } of chunk.tool_call_chunks) {
    const call = calls[index] ?? { id: "", name: "", args: "" };
    calls[index] = { id: call.id || (id ?? ""), name: call.name || (name ?? ""), args: call.args + args };
  }
  return { id: chunk.id, parts, calls };
}

interface Progress {
  type: string;
  tool_call_id: string;
  args?: Record<string, unknown>;
  stream?: "stdout" | "stderr";
  text?: string;
}

function withProgress(before: Live, { type, tool_call_id: call, args, stream, text }: Progress): Live {
  switch (type) {
    case "tool_started":
      return {
        ...before,
        output: { ...before.output, [call]: [] },
        working: { ...before.working, [call]: args ?? {} },
      };
    case "tool_output": {
      const piece = { stream: stream ?? "stdout", text: text ?? "" };
      return { ...before, output: { ...before.output, [call]: keep(before.output[call] ?? [], piece) } };
    }
    case "tool_finished": {
      const { [call]: _, ...working } = before.working;
      return { ...before, working };
    }
    default:
      return before;
  }
}
