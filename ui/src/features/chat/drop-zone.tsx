import { type DragEvent, type ReactNode, useState } from "react";

/** Takes files that are dropped anywhere on it. */
export function DropZone({ onFiles, children }: { onFiles?: (files: File[]) => void; children: ReactNode }) {
  const [over, setOver] = useState(false);
  const hasFiles = (event: DragEvent) => onFiles !== undefined && event.dataTransfer.types.includes("Files");
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: dropping is a shortcut for the button that attaches files
    <div
      onDragOver={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={(event) => {
        if (!event.currentTarget.contains(event.relatedTarget as Node | null)) setOver(false);
      }}
      onDrop={(event) => {
        if (!hasFiles(event)) return;
        event.preventDefault();
        setOver(false);
        onFiles?.([...event.dataTransfer.files]);
      }}
      className="relative flex min-h-0 min-w-0 flex-1 flex-col"
    >
      {children}
      {over && (
        <div className="pointer-events-none absolute inset-2 z-30 flex items-center justify-center rounded border-2 border-dashed border-accent bg-bg/80">
          Drop files to attach them
        </div>
      )}
    </div>
  );
}
