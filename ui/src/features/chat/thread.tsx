// One conversation: /chat/THREAD. With `at` in the address it shows as it was at that checkpoint.
import { useQuery } from "@tanstack/react-query";
import { FolderDown, History as HistoryIcon } from "lucide-react";
import { useState } from "react";
import { useParams } from "react-router";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Loading, useTitle } from "@/components/page";
import { WithPanel } from "@/components/side-panel";
import { notifyError } from "@/components/toast";
import { curl, quote } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { keepDraft, useDraft } from "@/lib/use-draft";
import { added, Composer } from "./composer";
import { DropZone } from "./drop-zone";
import { Ended } from "./ended";
import { Files } from "./files";
import { Head } from "./head";
import { History } from "./history";
import { Log } from "./log";
import { Messages } from "./messages";
import { stateAt } from "./queries";
import { titleOf } from "./text";
import { useConversation } from "./use-conversation";
import { useSay } from "./use-say";

/** Ids go into the addresses of requests: what is none must not lead elsewhere. */
const THREAD = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const CHECKPOINT = /^[0-9a-f-]{32,36}$/;

export default function ThreadPage() {
  const { thread = "" } = useParams();
  if (THREAD.test(thread)) return <Thread key={thread} id={thread} />;
  return <Unknown error={new Error("there is no such thread")} />;
}

function Unknown({ error, retry }: { error: unknown; retry?: () => void }) {
  return (
    <>
      <Head title="Conversation" />
      <div className="p-4">
        <ErrorNote what="The conversation cannot be shown" error={error} retry={retry} />
      </div>
    </>
  );
}

function Thread({ id }: { id: string }) {
  const readOnly = useSignedIn().scope === "read_only";
  const [at, go] = useAddress();
  const talk = useConversation(id);
  const [text, setText] = useDraft(id);
  const [files, setFiles] = useState<File[]>([]);
  const { run } = talk.live;
  const checkpoint = CHECKPOINT.test(at("at")) ? at("at") : "";
  const past = useQuery({ ...stateAt(id, checkpoint), enabled: checkpoint !== "" });
  const messages = checkpoint ? (past.data?.values.messages ?? []) : talk.messages;
  const { say, sent, stop } = useSay({
    thread: id,
    messages,
    from: checkpoint || undefined,
    onSaid: () => keepDraft(id, ""),
  });
  const title = talk.thread ? titleOf(talk.thread) : "Conversation";
  useTitle(title);
  const send = () => {
    talk.start.reset();
    say.mutate(
      { text: text.trim(), files },
      {
        onSuccess: () => {
          setText("");
          setFiles([]);
          go({ at: "" });
        },
        onError: (error) => notifyError("The message was not sent", error),
      },
    );
  };
  const panel = at("panel");
  const close = () => go({ panel: "" });
  if (talk.error && !talk.thread) return <Unknown error={talk.error} retry={() => void talk.refetch()} />;
  return (
    <>
      <Head title={title}>
        <CopyAs small cli={`atoll chat --thread ${quote(id)}`} curl={curl("GET", `/threads/${id}/state`)} />
        <Button
          kind="quiet"
          small
          icon={<FolderDown size={14} />}
          aria-label="Files and sandboxes"
          onClick={() => go({ panel: panel === "files" ? "" : "files" })}
        >
          <span className="max-md:hidden">Files</span>
        </Button>
        <Button
          kind="quiet"
          small
          icon={<HistoryIcon size={14} />}
          aria-label="History"
          onClick={() => go({ panel: panel === "history" ? "" : "history" })}
        >
          <span className="max-md:hidden">History</span>
        </Button>
      </Head>
      <WithPanel
        panel={
          panel === "files" ? (
            <Files thread={id} onClose={close} />
          ) : panel === "history" ? (
            <History thread={id} at={checkpoint} onOpen={(next) => go({ at: next }, true)} onClose={close} />
          ) : undefined
        }
      >
        <DropZone onFiles={readOnly ? undefined : (more) => setFiles(added(files, more))}>
          {checkpoint && <Past onLeave={() => go({ at: "" })} />}
          <Log busy={talk.busy} grown={checkpoint || talk.live}>
            {!talk.thread && <Loading />}
            {past.error && <ErrorNote what="That state cannot be shown" error={past.error} />}
            <Messages
              thread={id}
              messages={messages}
              live={talk.live}
              busy={talk.busy && !checkpoint}
              requests={checkpoint ? [] : talk.requests}
              onDecide={
                readOnly
                  ? undefined
                  : (decisions) => talk.start.mutate({ messages: talk.messages, decisions })
              }
              onEdit={
                readOnly || checkpoint || talk.fork.isPending
                  ? undefined
                  : (message, content) => talk.fork.mutateAsync({ message, content })
              }
            />
            {!checkpoint && <Ended talk={talk} readOnly={readOnly} />}
          </Log>
          {!readOnly && (
            <Composer
              text={text}
              files={files}
              onText={setText}
              onFiles={setFiles}
              onSend={send}
              sending={say.isPending ? { sent, stop } : undefined}
              onCancel={run ? () => talk.cancel.mutate(run) : undefined}
              cancelling={talk.cancel.variables === run && !talk.cancel.isError}
              hint={talk.requests.length > 0 && "Writing something else refuses what waits."}
            />
          )}
        </DropZone>
      </WithPanel>
    </>
  );
}

function Past({ onLeave }: { onLeave: () => void }) {
  return (
    <div role="status" className="flex items-center gap-3 border-b bg-raised px-4 py-2 text-xs">
      <span className="flex-1">
        The conversation as it was. What you write goes on from here; what came after stays in the history.
      </span>
      <Button small onClick={onLeave}>
        To the newest
      </Button>
    </div>
  );
}
