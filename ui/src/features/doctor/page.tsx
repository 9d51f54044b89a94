// What this machine can and cannot do, with a remedy for what is missing: what the server saw of `atoll doctor` when it
// started.
import { useQuery } from "@tanstack/react-query";
import { send } from "@/api/client";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Mark, type Tone } from "@/components/mark";
import { Loading, Page, Panel } from "@/components/page";

interface Finding {
  name: string;
  verdict: "good" | "lacking" | "bad";
  seen: string;
  fix: string | null;
}

const SHOWN: Record<Finding["verdict"], { tone: Tone; word: string }> = {
  good: { tone: "verified", word: "good" },
  lacking: { tone: "waits", word: "lacking" },
  bad: { tone: "lost", word: "bad" },
};

const findings = {
  queryKey: ["doctor"],
  queryFn: async ({ signal }: { signal: AbortSignal }) => {
    const response = await send("/ui/doctor.json", { signal });
    return ((await response.json()) as { findings: Finding[] }).findings;
  },
};

export default function Doctor() {
  const { data, error, isPending } = useQuery(findings);
  return (
    <Page title="Doctor">
      {error && <ErrorNote what="What the server found cannot be read" error={error} />}
      {isPending && <Loading />}
      {data && (
        <Panel title="This machine, as the server saw it when it started">
          <ul aria-label="Findings">
            {data.map(({ name, verdict, seen, fix }) => (
              <li
                key={name}
                className="flex flex-wrap items-baseline gap-x-4 gap-y-1 border-b px-3 py-2 last:border-b-0"
              >
                <span className="w-20 shrink-0 text-xs">
                  <Mark tone={SHOWN[verdict].tone}>{SHOWN[verdict].word}</Mark>
                </span>
                <span className="w-28 shrink-0 font-medium">{name}</span>
                <span className="min-w-40 flex-1 wrap-anywhere">
                  {seen}
                  {fix && <span className="block text-xs text-muted">{fix}</span>}
                </span>
              </li>
            ))}
          </ul>
        </Panel>
      )}
      <div className="flex flex-col gap-1 text-xs text-muted">
        <p>At a terminal of this machine it also tries a real sandbox:</p>
        <CopyLine text="atoll doctor" />
      </div>
    </Page>
  );
}
