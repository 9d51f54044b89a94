import { useQuery } from "@tanstack/react-query";
import { images } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { Input, Select } from "@/components/field";
import { cx } from "@/lib/cx";
import { count } from "@/lib/format";
import { imageNames } from "@/lib/image-names";
import { useTyped } from "@/lib/use-typed";

const STATUSES = ["creating", "running", "paused", "stopped", "dead"] as const;

interface Props {
  get: (name: string) => string;
  set: (changes: Record<string, string>) => void;
  counts: Record<string, number>;
}

/** What the list is narrowed down to; all of it is in the address. */
export function Filters({ get, set, counts }: Props) {
  const { scope } = useSignedIn();
  const status = get("status");
  const all = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const found = useQuery(images());
  const names = found.data?.items.flatMap(imageNames) ?? [];
  const image = get("image");
  return (
    <div className="flex flex-wrap items-center gap-2 border-b px-4 py-2">
      <div role="group" aria-label="Status" className="flex flex-wrap gap-1">
        <Choice on={status === ""} label="All" count={all} onClick={() => set({ status: "" })} />
        {STATUSES.filter((each) => counts[each] || status === each || each === "running").map((each) => (
          <Choice
            key={each}
            on={status === each}
            label={each}
            count={counts[each] ?? 0}
            onClick={() => set({ status: each })}
          />
        ))}
      </div>
      <div className="flex-1" />
      {scope === "admin" && (
        <Select
          aria-label="Owners"
          className="w-auto!"
          value={get("of")}
          onChange={(event) => set({ of: event.target.value })}
        >
          <option value="">All owners</option>
          <option value="me">My own</option>
        </Select>
      )}
      <Select
        aria-label="Image"
        className="w-auto! max-w-40"
        value={image}
        onChange={(event) => set({ image: event.target.value })}
      >
        <option value="">Any image</option>
        {[...names, ...(image && !names.includes(image) ? [image] : [])].map((name) => (
          <option key={name}>{name}</option>
        ))}
      </Select>
      <Search value={get("q")} onChange={(q) => set({ q })} />
    </div>
  );
}

function Choice({
  on,
  label,
  count: number,
  onClick,
}: {
  on: boolean;
  label: string;
  count: number;
  onClick: () => void;
}) {
  return (
    <button
      type="button"
      aria-pressed={on}
      onClick={onClick}
      className={cx(
        "h-7 rounded border px-2 text-xs capitalize",
        on ? "border-line-strong bg-raised text-text" : "border-transparent text-muted hover:text-text",
      )}
    >
      {label} <span className="text-muted">{count(number)}</span>
    </button>
  );
}

function Search({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [text, setText] = useTyped(value, onChange);
  return (
    <Input
      type="search"
      aria-label="Search sandboxes"
      placeholder="/ id, image, label, owner"
      className="md:w-56!"
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}
