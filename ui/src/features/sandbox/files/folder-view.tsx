// A folder: its entries, and what can be done in it. Files dropped on it are uploaded.
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "@/components/confirm";
import { ErrorNote } from "@/components/error-note";
import { Loading } from "@/components/page";
import { Bytes, Time } from "@/components/time";
import { cx } from "@/lib/cx";
import { join } from "@/lib/paths";
import { visibleLine } from "@/lib/plain-text";
import { folder, present } from "./queries";
import { Tools } from "./tools";
import { kindIcon } from "./tree";
import { type Chosen, dropped } from "./uploads";

/** More names do not help to decide. */
const SHOWN = 10;

interface Props {
  sandbox: string;
  path: string;
  readOnly: boolean;
  onShow: (path: string) => void;
  onUpload: (chosen: Chosen[]) => void;
}

export function FolderView({ sandbox, path, readOnly, onShow, onUpload }: Props) {
  const { data, error, refetch } = useQuery(folder(sandbox, path));
  const [over, setOver] = useState(false);
  const [asked, setAsked] = useState<{ chosen: Chosen[]; replaced: string[] }>();
  // A folder that is dropped has files at any depth: the sandbox is asked which of them are there.
  const check = useMutation({
    mutationFn: (chosen: Chosen[]) =>
      present(
        sandbox,
        chosen.map((each) => join(path, each.path)),
      ),
    onSuccess: (replaced, chosen) => {
      if (replaced.length > 0) setAsked({ chosen, replaced });
      else onUpload(chosen);
    },
    meta: { failed: "Nothing was uploaded, since it is not known what it would replace" },
  });
  const offer = (chosen: Chosen[]) => {
    if (chosen.length > 0) check.mutate(chosen);
  };
  return (
    <section
      aria-label="Folder"
      onDragOver={(event) => {
        if (readOnly) return;
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        if (readOnly) return;
        event.preventDefault();
        setOver(false);
        void dropped(event.dataTransfer).then(offer);
      }}
      className={cx(
        "flex min-h-0 flex-1 flex-col",
        over && "bg-raised outline-2 outline-dashed outline-accent",
      )}
    >
      <Tools sandbox={sandbox} path={path} readOnly={readOnly} onShow={onShow} onChosen={offer} />
      {error && <ErrorNote what="The folder cannot be listed" error={error} retry={() => void refetch()} />}
      {!data && !error && <Loading />}
      <div className="min-h-0 flex-1 overflow-y-auto">
        {data?.items.length === 0 && (
          <p className="p-8 text-center text-muted">
            The folder is empty. {!readOnly && "Drag files here to upload them."}
          </p>
        )}
        <ul aria-label="Entries">
          {data?.items.map((item) => (
            <li key={item.path} className="border-b">
              <button
                type="button"
                onClick={() => onShow(item.path)}
                className="flex h-9 w-full items-center gap-2 px-3 text-left hover:bg-raised"
              >
                {kindIcon(item)}
                <span className="min-w-0 flex-1 truncate">
                  {visibleLine(item.name)}
                  {item.target && <span className="text-muted"> → {visibleLine(item.target)}</span>}
                </span>
                <span className="font-mono text-xs text-muted max-md:hidden">{item.mode}</span>
                <span className="w-20 text-right text-xs text-muted">
                  {item.type === "file" && <Bytes count={item.size} />}
                </span>
                <span className="w-14 text-right text-xs text-muted">
                  <Time at={item.modified_at} />
                </span>
              </button>
            </li>
          ))}
        </ul>
        {data?.truncated && (
          <p className="p-3 text-muted">The folder has more entries; the first are shown.</p>
        )}
      </div>
      <Confirm
        open={asked !== undefined}
        title="Replace what is there?"
        verb="Replace"
        onClose={() => setAsked(undefined)}
        onConfirm={() => {
          if (asked) onUpload(asked.chosen);
          setAsked(undefined);
        }}
      >
        The present content of {asked && namesOf(asked.replaced)} is lost.
      </Confirm>
    </section>
  );
}

/** The first of them, and how many more there are. */
function namesOf(paths: string[]): string {
  const shown = paths.slice(0, SHOWN).map(visibleLine).join(", ");
  return paths.length > SHOWN ? `${shown} and ${paths.length - SHOWN} more` : shown;
}
