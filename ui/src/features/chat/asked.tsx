import type { Facts } from "@/api/agent";
import { Code } from "@/components/code";
import { visibleLine } from "@/lib/plain-text";
import { programOf, titleOf } from "./tools";

interface Props {
  asked: NonNullable<Facts["asked"]>;
  /** The tool that was carried out. */
  name: string;
  runtime: string;
}

/** What the model had asked for, where a person had something else carried out: that is what the block shows. */
export function Asked({ asked, name, runtime }: Props) {
  const { args } = asked;
  const program = typeof args === "string" ? undefined : programOf(asked.name, args, runtime);
  const text = program?.text ?? (typeof args === "string" ? args : JSON.stringify(args, null, 2));
  return (
    <details className="text-xs text-muted">
      <summary className="cursor-pointer">
        A person changed this call. What the model asked for
        {asked.name !== name && `: ${visibleLine(titleOf(asked.name))}`}
      </summary>
      <Code text={text} language={program?.language ?? "json"} label="What the model asked for" bare />
    </details>
  );
}
