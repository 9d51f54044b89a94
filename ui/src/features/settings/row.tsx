import { Undo2 } from "lucide-react";
import { useId } from "react";
import { Button } from "@/components/button";
import { Input, inputClass, Select } from "@/components/field";
import { cx } from "@/lib/cx";
import { duration, mebibytes } from "@/lib/format";
import { type Setting, textOf } from "./model";

/** What is to become of a setting: another text, or null to take back what was stored. */
export type Draft = string | null;

interface Props {
  setting: Setting;
  draft?: Draft;
  error?: string;
  onDraft: (draft: Draft | undefined) => void;
}

const SOURCES: Record<string, string> = {
  default: "built in",
  file: "from the configuration file",
  environment: "from a variable",
  flag: "from --set",
  stored: "set here",
};

/** A figure in words, where that says more than the digits. */
function reading(setting: Setting, text: string): string {
  const figure = Number(text);
  if (setting.kind !== "number" || text === "" || !(figure > 0)) return "";
  if (setting.name.endsWith("_seconds") && figure >= 60) return duration(figure * 1000);
  if (setting.name.endsWith("_mb") && figure >= 1024) return mebibytes(figure);
  return "";
}

export function SettingRow({ setting, draft, error, onDraft }: Props) {
  const id = useId();
  const changed = draft !== undefined;
  const text = draft ?? (draft === null ? "" : textOf(setting));
  const { minimum, maximum } = setting;
  const range = minimum !== undefined && maximum !== undefined ? `${minimum} to ${maximum}` : "";
  return (
    <div
      className={cx(
        "grid gap-x-6 gap-y-1 border-b px-3 py-2 last:border-b-0 md:grid-cols-[minmax(0,1fr)_20rem]",
        changed && "bg-raised",
      )}
    >
      <div className="min-w-0">
        <label htmlFor={id} className="font-mono text-xs break-all">
          {setting.name}
        </label>
        {setting.description && <p className="text-xs text-muted">{setting.description}</p>}
      </div>
      <div className="min-w-0">
        <div className="flex items-center gap-2">
          {draft === null ? (
            <span className="flex h-8 flex-1 items-center text-muted">what was set here is taken back</span>
          ) : (
            <Control
              id={id}
              setting={setting}
              text={text}
              describedBy={`${id}-note`}
              invalid={error !== undefined}
              onText={(next) => onDraft(next === textOf(setting) ? undefined : next)}
            />
          )}
          {changed ? (
            <Button
              kind="quiet"
              small
              aria-label={`Keep ${setting.name} as it is`}
              onClick={() => onDraft(undefined)}
            >
              <Undo2 size={14} />
            </Button>
          ) : (
            setting.source === "stored" && (
              <Button kind="quiet" small onClick={() => onDraft(null)}>
                Take back
              </Button>
            )
          )}
        </div>
        <p id={`${id}-note`} className={cx("mt-0.5 text-xs", error ? "text-danger" : "text-muted")}>
          {error ??
            [SOURCES[setting.source] ?? setting.source, reading(setting, text), changed && range]
              .filter(Boolean)
              .join(" · ")}
        </p>
      </div>
    </div>
  );
}

interface ControlProps {
  id: string;
  setting: Setting;
  text: string;
  describedBy: string;
  invalid: boolean;
  onText: (text: string) => void;
}

function Control({ id, setting, text, describedBy, invalid, onText }: ControlProps) {
  const common = { id, "aria-describedby": describedBy, "aria-invalid": invalid };
  switch (setting.kind) {
    case "switch":
      return (
        <Select {...common} value={text} onChange={(event) => onText(event.target.value)}>
          <option value="true">on</option>
          <option value="false">off</option>
        </Select>
      );
    case "choice":
      return (
        <Select {...common} value={text} onChange={(event) => onText(event.target.value)}>
          {setting.options.map((option) => (
            <option key={option}>{option}</option>
          ))}
        </Select>
      );
    case "json":
      return (
        <textarea
          {...common}
          rows={Math.min(8, text.split("\n").length)}
          spellCheck={false}
          value={text}
          onChange={(event) => onText(event.target.value)}
          className={cx(inputClass, "h-auto py-1 font-mono text-xs")}
        />
      );
    default:
      return (
        <Input
          {...common}
          inputMode={setting.kind === "number" ? "decimal" : undefined}
          placeholder={setting.kind === "list" ? "empty; several by commas" : "empty"}
          value={text}
          onChange={(event) => onText(event.target.value)}
        />
      );
  }
}
