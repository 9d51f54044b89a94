// A decision about the network, wherever one is shown. One that was refused can be allowed from here on: the host and
// port are added to the policy of the sandbox, which applies at once.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { cx } from "@/lib/cx";
import { plain, visibleLine } from "@/lib/plain-text";
import { Button } from "./button";
import { Time } from "./time";
import { notify } from "./toast";

type Decision = Schemas["EgressItem"];
type Policy = Schemas["EgressPolicy"];

/** The policy with one more entry. Where nothing was allowed, a list begins with this one. */
export function allowing(policy: Policy, entry: string): Policy {
  const mode = policy.mode === "full" ? "full" : "allowlist";
  const allow = policy.mode === "none" ? [entry] : [...(policy.allow ?? []), entry];
  const deny = (policy.deny ?? []).filter((each) => each !== entry && each !== entry.replace(/:\d+$/, ""));
  return { ...policy, mode, allow, ...(policy.deny && { deny }) } as Policy;
}

/** Host and port as an entry of a policy; an IPv6 address in brackets. */
export function entryOf({ host, port }: Pick<Decision, "host" | "port">): string {
  if (!port) return host;
  return host.includes(":") ? `[${host}]:${port}` : `${host}:${port}`;
}

export function useAllow(sandbox: string) {
  const client = useQueryClient();
  const params = { path: { id: sandbox } };
  return useMutation({
    // One after another: each adds to the policy that the one before has made.
    scope: { id: `egress ${sandbox}` },
    mutationFn: async (entry: string) => {
      const { policy } = await unwrap(api.GET("/api/v1/sandboxes/{id}/egress", { params }));
      return unwrap(api.PUT("/api/v1/sandboxes/{id}/egress", { params, body: allowing(policy, entry) }));
    },
    onSuccess: (_, entry) => {
      notify(`${entry} is allowed from now on`);
      return refreshSandbox(client, sandbox);
    },
    meta: { failed: "The host was not allowed" },
  });
}

export function DecisionRow({ sandbox, decision }: { sandbox: string; decision: Decision }) {
  const readOnly = useSignedIn().scope === "read_only";
  const allow = useAllow(sandbox);
  const refused = decision.verdict === "refused";
  const entry = entryOf(decision);
  return (
    <div className="flex min-h-7 flex-wrap items-center gap-x-2 text-xs">
      <span className={cx("w-16 shrink-0", refused ? "text-danger" : "text-muted")}>{decision.verdict}</span>
      <span className="max-w-full truncate font-mono">
        {decision.method && `${visibleLine(decision.method)} `}
        {visibleLine(entry)}
        {decision.path && visibleLine(decision.path)}
      </span>
      <span className="text-muted">
        {visibleLine(decision.rule)}
        {decision.count > 1 && ` · ${decision.count} times`}
        {decision.error && ` · ${plain(decision.error)}`}
      </span>
      <span className="text-muted">
        <Time at={decision.at} suffix=" ago" />
      </span>
      {refused && !readOnly && (
        <Button small disabled={allow.isPending} onClick={() => allow.mutate(entry)}>
          Allow {visibleLine(entry)}
        </Button>
      )}
    </div>
  );
}
