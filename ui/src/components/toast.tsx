// Short notes about what was done or refused. `notify` may be called from anywhere.
import { Toast } from "@base-ui/react/toast";
import { X } from "lucide-react";
import type { ReactNode } from "react";
import { asApiError } from "@/api/errors";

const manager = Toast.createToastManager();

export function notify(title: string, description?: string): void {
  manager.add({ title, description });
}

/** A refusal stays until it is closed: it may be what was waited for. */
export function notifyError(what: string, error: unknown): void {
  manager.add({ title: what, description: asApiError(error).message, timeout: 0, priority: "high" });
}

function List() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((toast) => (
    <Toast.Root
      key={toast.id}
      toast={toast}
      className="rounded border border-line-strong bg-surface p-3 text-sm"
    >
      <div className="flex items-start gap-2">
        <div className="min-w-0 flex-1">
          <Toast.Title className="font-medium" />
          <Toast.Description className="break-words text-muted" />
        </div>
        <Toast.Close aria-label="Close" className="rounded p-0.5 text-muted hover:text-text">
          <X size={14} />
        </Toast.Close>
      </div>
    </Toast.Root>
  ));
}

export function Toasts({ children }: { children: ReactNode }) {
  return (
    <Toast.Provider toastManager={manager} timeout={5000}>
      {children}
      <Toast.Portal>
        <Toast.Viewport className="fixed right-4 bottom-4 z-50 flex w-[min(22rem,calc(100vw-2rem))] flex-col gap-2">
          <List />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}
