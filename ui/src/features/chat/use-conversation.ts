// One conversation: what was said, what is under way, and what can be done about it.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { type ActionRequest, ask, type Decision, type Message, type Run } from "@/api/agent";
import { useConnection } from "@/api/connection";
import { follow, MODES } from "./follow";
import { change, IDLE, live } from "./live";
import { checkpointsOf, runOf, runSettings, runs, stateAt, thread as threadQuery } from "./queries";

/** A run to begin, and the conversation as it shows from then on. */
export interface Start {
  messages: Message[];
  /** A new message; without one the agent goes on where it stands. */
  input?: { type: "human"; id: string; content: string };
  decisions?: Decision[];
  /** The checkpoint that it goes on from, instead of the last one. */
  from?: string;
}

/** Begins a run of a thread. */
export function useStart() {
  const client = useQueryClient();
  return async (thread: string, { messages, input, decisions, from }: Start) => {
    const before = client.getQueryData(live(thread).queryKey) ?? IDLE;
    const shown = { messages, floor: messages.length, at: Date.now(), interrupts: undefined };
    change(client, thread, ({ output }) => ({ ...IDLE, ...shown, output, starting: true }));
    try {
      const configurable = await client.ensureQueryData(runSettings());
      const run = await ask<Run>("POST", `/threads/${thread}/runs`, {
        assistant_id: "agent",
        input: input && { messages: [input] },
        command: decisions && { resume: { decisions } },
        checkpoint_id: from,
        config: { configurable },
        stream_mode: MODES,
        multitask_strategy: "reject",
      });
      change(client, thread, (now) => ({ ...now, run: run.run_id, starting: false }));
    } catch (error) {
      change(client, thread, () => ({ ...before, starting: false }));
      // Another client may have begun a run.
      void client.invalidateQueries({ queryKey: ["thread", thread] });
      throw error;
    }
    void client.invalidateQueries({ queryKey: ["threads"] });
  };
}

/** The checkpoint of the input whose last message is this one: that of the run that began with it. Where no run says so, as
 * in a copy of a conversation, the states of inputs are looked through. */
async function checkpointOf(
  client: ReturnType<typeof useQueryClient>,
  thread: string,
  message: string,
): Promise<string> {
  const run = await runOf(thread, message);
  for await (const { id, metadata } of checkpointsOf(thread)) {
    if (metadata.source === "loop" || (run && metadata.run_id !== run.run_id)) continue;
    const { values } = await client.fetchQuery(stateAt(thread, id));
    if (values.messages.at(-1)?.id === message) return id;
  }
  throw new Error("the history of this conversation no longer has that message");
}

// One list each, so that what shows them need not be drawn again.
const NONE: ActionRequest[] = [];
const NOTHING: Message[] = [];

/** How often a thread is asked for the run that another client began, until it is joined, in milliseconds. */
const PACE = 2000;

export function useConversation(id: string) {
  const client = useQueryClient();
  const signedOut = useConnection() === "signed-out";
  const { data: now } = useQuery(live(id));
  const { run } = now;
  const busy = run !== undefined || now.starting === true;
  const {
    data: thread,
    error,
    refetch,
    dataUpdatedAt,
  } = useQuery({
    ...threadQuery(id),
    refetchInterval: ({ state }) => (!busy && state.data?.status === "busy" ? PACE : false),
  });
  const startRun = useStart();

  // A run that was begun before this page was opened, or by another client.
  const elsewhere = useQuery({
    ...runs(id),
    enabled: !busy && thread?.status === "busy",
    staleTime: 0,
    refetchInterval: PACE,
  });
  const active = elsewhere.data?.findLast((each) => each.status === "running" || each.status === "pending");
  const joined = !busy && thread?.status === "busy" ? active?.run_id : undefined;
  useEffect(() => {
    if (!joined) return;
    const messages = thread?.values?.messages;
    change(client, id, ({ output }) => ({ ...IDLE, output, run: joined, messages, at: Date.now() }));
  }, [client, id, joined, thread]);

  useEffect(() => {
    if (!run || signedOut) return;
    const end = new AbortController();
    void follow(client, id, run, end.signal);
    return () => end.abort();
  }, [client, id, run, signedOut]);

  const start = useMutation({ mutationFn: (wanted: Start) => startRun(id, wanted) });
  const cancel = useMutation({
    mutationFn: (which: string) => ask<void>("POST", `/threads/${id}/runs/${which}/cancel`),
    meta: { failed: "The run was not cancelled" },
  });
  const fork = useMutation({
    mutationFn: async ({ message, content }: { message: string; content: string }) => {
      const from = await checkpointOf(client, id, message);
      const { values } = await client.fetchQuery(stateAt(id, from));
      const input = { type: "human" as const, id: message, content };
      await startRun(id, { messages: [...values.messages.slice(0, -1), input], input, from });
    },
    meta: { failed: "The conversation was not forked" },
  });

  // What the run told is newer than what was read before it.
  const newer = busy || now.at > dataUpdatedAt;
  const waiting = newer ? now.interrupts : Object.values(thread?.interrupts ?? {})[0];
  const failure = thread?.error ? { code: "failed", message: thread.error } : undefined;
  return {
    thread,
    error,
    refetch,
    busy,
    live: now,
    messages: (newer ? now.messages : thread?.values?.messages) ?? NOTHING,
    requests: (busy ? undefined : waiting?.[0]?.value.action_requests) ?? NONE,
    /** Why the last run failed, and why it stopped. */
    failure: busy ? undefined : (now.ended?.error ?? failure),
    stopped: busy ? undefined : now.ended?.stop,
    start,
    cancel,
    fork,
  };
}

export type Conversation = ReturnType<typeof useConversation>;
