// The settings of the chat: the owner's model, and what each run may use. They are the server's, so they hold in every
// browser; the key goes there and never comes back.
import { Dialog } from "@base-ui/react/dialog";
import { useQuery } from "@tanstack/react-query";
import { X } from "lucide-react";
import { ErrorNote } from "@/components/error-note";
import { Loading } from "@/components/page";
import { modelSettings, runSettings } from "./queries";
import { SettingsForm } from "./settings-form";

export function Settings({ open, onClose }: { open: boolean; onClose: () => void }) {
  return (
    <Dialog.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <Dialog.Portal>
        <Dialog.Backdrop className="fixed inset-0 z-40 bg-bg/70" />
        <Dialog.Popup className="fixed top-1/2 left-1/2 z-50 flex max-h-[calc(100dvh-2rem)] w-[min(36rem,calc(100vw-2rem))] -translate-x-1/2 -translate-y-1/2 flex-col rounded border border-line-strong bg-surface">
          <div className="flex items-center gap-2 border-b px-4 py-2">
            <Dialog.Title className="flex-1 text-base font-medium">Settings of the chat</Dialog.Title>
            <Dialog.Close aria-label="Close" className="rounded p-1 text-muted hover:text-text">
              <X size={16} />
            </Dialog.Close>
          </div>
          <Loaded onClose={onClose} />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function Loaded({ onClose }: { onClose: () => void }) {
  const model = useQuery(modelSettings());
  const run = useQuery(runSettings());
  const error = model.error ?? run.error;
  if (error) {
    return (
      <div className="p-4">
        <ErrorNote what="The settings cannot be read" error={error} />
      </div>
    );
  }
  if (!model.data || !run.data) return <Loading />;
  return <SettingsForm model={model.data} run={run.data} onClose={onClose} />;
}
