import { PanelLeft, SlidersHorizontal } from "lucide-react";
import type { ReactNode } from "react";
import { Button } from "@/components/button";
import { useAddress } from "@/lib/use-address";

/** The title of a conversation and what can be done with it. */
export function Head({ title, children }: { title: string; children?: ReactNode }) {
  const [, go] = useAddress();
  return (
    <div className="flex min-h-12 items-center gap-2 border-b px-4 py-2">
      <Button
        kind="quiet"
        small
        className="md:hidden"
        aria-label="Conversations"
        onClick={() => go({ list: "1" })}
      >
        <PanelLeft size={16} />
      </Button>
      <h1 className="min-w-0 flex-1 truncate text-base font-medium">{title}</h1>
      {children}
      <Button
        kind="quiet"
        small
        icon={<SlidersHorizontal size={14} />}
        aria-label="Settings of the chat"
        onClick={() => go({ settings: "1" })}
      >
        <span className="max-md:hidden">Settings</span>
      </Button>
    </div>
  );
}
