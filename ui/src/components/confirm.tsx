import { AlertDialog } from "@base-ui/react/alert-dialog";
import type { ReactNode } from "react";
import { Button } from "./button";

interface Props {
  open: boolean;
  title: string;
  /** What will be lost. */
  children: ReactNode;
  /** The verb on the button. */
  verb: string;
  busy?: boolean;
  onConfirm: () => void;
  onClose: () => void;
}

/** Asked only before what cannot be undone; it says what will be lost. */
export function Confirm({ open, title, children, verb, busy = false, onConfirm, onClose }: Props) {
  return (
    <AlertDialog.Root open={open} onOpenChange={(next) => !next && onClose()}>
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className="fixed inset-0 z-40 bg-bg/70" />
        <AlertDialog.Popup className="fixed top-1/4 left-1/2 z-50 w-[min(28rem,calc(100vw-2rem))] -translate-x-1/2 rounded border border-line-strong bg-surface p-4">
          <AlertDialog.Title className="text-base font-medium">{title}</AlertDialog.Title>
          <AlertDialog.Description className="mt-2 text-muted" render={<div />}>
            {children}
          </AlertDialog.Description>
          <div className="mt-4 flex justify-end gap-2">
            <Button onClick={onClose}>Keep</Button>
            <Button kind="danger" disabled={busy} onClick={onConfirm}>
              {verb}
            </Button>
          </div>
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}
