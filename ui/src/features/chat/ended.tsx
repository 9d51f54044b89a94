// Why the agent does not go on: it failed, a request was refused, or a budget is used up.
import { ApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { useAddress } from "@/lib/use-address";
import type { Conversation } from "./use-conversation";

const STOPPED: Record<string, string> = {
  max_iterations: "It has asked the model as often as a run may.",
  max_tokens: "It has used the tokens that a run may use.",
  max_seconds: "It has taken the time that a run may take.",
  cancelled: "The run was cancelled.",
};

export function Ended({ talk, readOnly }: { talk: Conversation; readOnly: boolean }) {
  const [, go] = useAddress();
  const { failure, stopped, start, messages, busy } = talk;
  const retry = () => start.mutate({ messages });
  if (start.error && !busy) return <ErrorNote what="The agent was not asked" error={start.error} />;
  if (failure) {
    return (
      <ErrorNote what="The agent stopped" error={new ApiError(failure.message, 0, failure.code)}>
        {!readOnly && (
          <div className="mt-2 flex gap-2">
            <Button small onClick={retry}>
              Try again
            </Button>
            <Button small onClick={() => go({ settings: "1" })}>
              Settings
            </Button>
          </div>
        )}
      </ErrorNote>
    );
  }
  const why = stopped === undefined ? undefined : STOPPED[stopped];
  if (!why) return null;
  return (
    <div role="status" className="flex items-center gap-3 text-xs text-muted">
      <span>{why}</span>
      {!readOnly && messages.at(-1)?.type !== "ai" && (
        <Button small onClick={retry}>
          Go on
        </Button>
      )}
    </div>
  );
}
