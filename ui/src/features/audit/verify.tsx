// The verdict of the server over its own trail, and the command for those who do not trust the server.
import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { Button } from "@/components/button";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Mark } from "@/components/mark";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { count } from "@/lib/format";

export function Verify({ onClose }: { onClose: () => void }) {
  const check = useQuery({
    queryKey: ["audit verdict"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/audit/verify", { signal })),
    staleTime: 0,
    gcTime: 0,
  });
  const verdict = check.data;
  const mark = verdict?.last != null && verdict.mac ? `${verdict.last}:${verdict.mac}` : "";
  return (
    <SidePanel title="Verify the trail" label="Verify the trail" onClose={onClose}>
      {check.error && <ErrorNote what="The trail could not be verified" error={check.error} />}
      {check.isPending && <Loading what="The server checks every row" />}
      {verdict && (
        <>
          <p role="status" className="text-base">
            {verdict.sound ? (
              <Mark tone="verified">sound</Mark>
            ) : (
              <Mark tone="lost">{verdict.unsure ? "could not tell" : "not sound"}</Mark>
            )}
          </p>
          {verdict.sound && <p className="text-muted">Nothing was changed, removed, moved or cut off.</p>}
          <Facts>
            <Fact name="First fault">
              {verdict.first_fault && (
                <span className="text-danger">
                  row {verdict.first_fault.seq}: {verdict.first_fault.message}
                </span>
              )}
            </Fact>
            <Fact name="Unsure">{verdict.unsure}</Fact>
            <Fact name="Rows">
              {verdict.first != null &&
                verdict.last != null &&
                `${count(verdict.first)} to ${count(verdict.last)}`}
            </Fact>
            <Fact name="Operations">{verdict.operations != null && count(verdict.operations)}</Fact>
            <Fact name="Not ended">{verdict.open != null && count(verdict.open)}</Fact>
            <Fact name="Noted">
              {verdict.noted.length > 0 &&
                verdict.noted.map((fault) => (
                  <span key={fault.seq} className="block">
                    row {fault.seq}: {fault.message}
                  </span>
                ))}
            </Fact>
            <Fact name="Remarks">{verdict.remarks.join("; ")}</Fact>
          </Facts>
          <div>
            <Button onClick={() => void check.refetch()} disabled={check.isFetching}>
              Verify again
            </Button>
          </div>
        </>
      )}
      <section className="flex flex-col gap-2">
        <h3 className="text-sm font-medium">Without trusting the server</h3>
        <p className="text-muted">
          On the server's machine this reads the data folder itself; it needs no server. It exits with 0 when
          the trail is sound, 1 when not, 2 when it cannot tell.
        </p>
        <CopyLine text="atoll audit verify --data-dir /var/lib/atoll" />
        {mark && (
          <>
            <p className="text-muted">
              Note the last row and its code elsewhere. A restored old copy of the trail does not have them:
            </p>
            <CopyLine text={`atoll audit verify --data-dir /var/lib/atoll --expect ${mark}`} />
          </>
        )}
      </section>
    </SidePanel>
  );
}
