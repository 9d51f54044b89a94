// Where a conversation begins: /chat. Without a model there is nothing to talk to, so that is the first step.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyLine } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { useTitle } from "@/components/page";
import { notifyError } from "@/components/toast";
import { useAddress } from "@/lib/use-address";
import { keepDraft, useDraft } from "@/lib/use-draft";
import { added, Composer } from "./composer";
import { DropZone } from "./drop-zone";
import { Head } from "./head";
import { modelSettings } from "./queries";
import { useSay } from "./use-say";

const FIRST = [
  "What is the 100th prime number? Work it out with code.",
  "Plot a sine wave and show me the picture.",
  "Which versions of Python and Node does a sandbox have?",
];

export default function NewChat() {
  useTitle("Chat");
  const client = useQueryClient();
  const navigate = useNavigate();
  const readOnly = useSignedIn().scope === "read_only";
  const [text, setText] = useDraft("new");
  const [files, setFiles] = useState<File[]>([]);
  const settings = useQuery(modelSettings());
  const [made, setMade] = useState<string>();
  const { say, sent, stop } = useSay({ thread: made, onMade: setMade, onSaid: () => keepDraft("new", "") });
  const send = () =>
    say.mutate(
      { text: text.trim(), files },
      {
        onSuccess: (thread) => void navigate(`/chat/${thread}`),
        onError: (error) => {
          void client.invalidateQueries({ queryKey: ["threads"] });
          notifyError("The message was not sent", error);
        },
      },
    );
  const model = settings.data?.model;
  return (
    <>
      <Head title="New conversation" />
      <DropZone onFiles={model && !readOnly ? (more) => setFiles(added(files, more)) : undefined}>
        <div className="flex min-h-0 flex-1 flex-col overflow-y-auto">
          {settings.error && (
            <div className="p-4">
              <ErrorNote what="The settings cannot be read" error={settings.error} />
            </div>
          )}
          {settings.data && !model && <NoModel readOnly={readOnly} />}
          {model && (
            <Empty title="Ask the agent for something">
              <p>
                It works with {model} in sandboxes of its own: it runs code and commands there and says what
                it found.
              </p>
              {!readOnly && (
                <ul className="mt-4 flex flex-col items-center gap-2">
                  {FIRST.map((example) => (
                    <li key={example}>
                      <button
                        type="button"
                        onClick={() => setText(example)}
                        className="rounded border border-line-strong bg-surface px-2 py-1 text-xs text-text hover:bg-raised"
                      >
                        {example}
                      </button>
                    </li>
                  ))}
                </ul>
              )}
            </Empty>
          )}
        </div>
        {model && !readOnly && (
          <Composer
            text={text}
            files={files}
            onText={setText}
            onFiles={setFiles}
            onSend={send}
            sending={say.isPending ? { sent, stop } : undefined}
          />
        )}
      </DropZone>
    </>
  );
}

function NoModel({ readOnly }: { readOnly: boolean }) {
  const [, go] = useAddress();
  return (
    <Empty title="No model is set yet">
      <p>
        The agent needs a model: its name, its provider and a key. Set your own, or let the operator set one
        for everyone when the server is started:
      </p>
      {!readOnly && (
        <Button kind="primary" className="my-4" onClick={() => go({ settings: "1" })}>
          Choose a model
        </Button>
      )}
      <div className="text-left text-text">
        <CopyLine text="CHAT_MODEL=gpt-4o CHAT_MODEL_PROVIDER=openai CHAT_MODEL_API_KEY=… atoll serve" />
      </div>
      <p className="mt-2 text-xs">
        The same as <code>ATOLL_AGENT_MODEL</code>, <code>ATOLL_AGENT_PROVIDER</code> and{" "}
        <code>ATOLL_AGENT_API_KEY</code>; with <code>CHAT_MODEL_BASE_URL</code> any server that speaks
        OpenAI's Chat Completions.
      </p>
    </Empty>
  );
}
