import { type ReactNode, useCallback, useState } from "react";
import type { ActionRequest, Decision, Message } from "@/api/agent";
import { Button } from "@/components/button";
import { Mark } from "@/components/mark";
import { Answer, Growing } from "./answer";
import { Approval } from "./approval";
import type { Live } from "./live";
import { Question } from "./question";
import { languageOf } from "./text";

interface Props {
  thread: string;
  messages: Message[];
  live: Live;
  busy: boolean;
  /** Calls that wait for approval. */
  requests: ActionRequest[];
  /** Nothing where the reader may only read. */
  onDecide?: (decisions: Decision[]) => void;
  onEdit?: (message: string, content: string) => Promise<unknown>;
}

export function Messages({ thread, messages, live, busy, requests, onDecide, onEdit }: Props) {
  const { pending, working, output, ended } = live;
  const [decided, setDecided] = useState<Record<string, Decision>>({});
  const decide = (more: Record<string, Decision>) => {
    const all = { ...decided, ...more };
    const words = requests.flatMap((request) => all[request.tool_call_id] ?? []);
    // The run goes on when each call of the step has a word.
    if (words.length === requests.length) {
      onDecide?.(words);
      setDecided({});
    } else setDecided(all);
  };
  // biome-ignore lint/correctness/useExhaustiveDependencies: `decide` changes with what is listed
  const approvalOf = useCallback(
    (call: string): ReactNode => {
      const request = requests.find((each) => each.tool_call_id === call);
      if (!request) return undefined;
      if (!onDecide) return <p className="text-xs text-warn">It waits for approval.</p>;
      return (
        <Approval
          request={request}
          runtime={languageOf(messages, request.args.session_id)}
          decision={decided[call]}
          onDecide={(decision) => decide({ [call]: decision })}
        />
      );
    },
    [requests, decided, messages, onDecide],
  );
  const grows = pending && !messages.some((message) => message.id === pending.id) ? pending : undefined;
  const cancelled = !busy && ended?.stop === "cancelled";
  return (
    <>
      {messages.map((message) => {
        if (message.type === "human") {
          return (
            <Question
              key={message.id}
              message={message}
              onEdit={onEdit && !busy ? (content) => onEdit(message.id, content) : undefined}
            />
          );
        }
        if (message.type !== "ai") return null;
        return (
          <div key={message.id} className="min-w-0">
            <Answer
              thread={thread}
              message={message}
              messages={messages}
              working={working}
              output={output}
              approvalOf={approvalOf}
            />
          </div>
        );
      })}
      {grows && (busy || cancelled) && (
        <div className="min-w-0">
          <Growing thread={thread} pending={grows} messages={messages} />
        </div>
      )}
      {requests.length > 1 && onDecide && (
        <div className="flex items-center gap-2 text-xs text-warn">
          <span className="flex-1">{requests.length} calls wait for your word.</span>
          <Button
            small
            onClick={() =>
              decide(Object.fromEntries(requests.map((each) => [each.tool_call_id, { type: "approve" }])))
            }
          >
            Approve all
          </Button>
        </div>
      )}
      {busy && !grows && Object.keys(working).length === 0 && (
        <p role="status" className="text-xs text-muted">
          <Mark tone="waits">The agent is at work</Mark>
        </p>
      )}
    </>
  );
}
