import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { Confirm } from "@/components/confirm";
import { Fact, Facts } from "@/components/facts";
import { Id } from "@/components/id";
import { SidePanel } from "@/components/side-panel";
import { Time } from "@/components/time";
import { notify } from "@/components/toast";
import { KeyState } from "./state";

export function KeyDetails({ item, onClose }: { item: Schemas["KeyItem"]; onClose: () => void }) {
  const { scope, key } = useSignedIn();
  return (
    <SidePanel title={item.name} label={`The key ${item.name}`} onClose={onClose}>
      <Facts>
        <Fact name="State">
          <KeyState item={item} />
        </Fact>
        <Fact name="Id">
          <Id id={item.id} />
        </Fact>
        <Fact name="Begins with">
          <code className="font-mono text-xs">{item.prefix}…</code>
        </Fact>
        <Fact name="Owner">{item.owner}</Fact>
        <Fact name="Scope">{item.scope.replace("_", "-")}</Fact>
        <Fact name="Tier">{item.tier}</Fact>
        <Fact name="Made">
          <Time at={item.created_at} suffix=" ago" />
        </Fact>
        <Fact name="Expires">{item.expires_at ? new Date(item.expires_at).toLocaleString() : "never"}</Fact>
        <Fact name="Revoked">{item.revoked_at && <Time at={item.revoked_at} suffix=" ago" />}</Fact>
        <Fact name="Last used">
          {item.last_used_at ? <Time at={item.last_used_at} suffix=" ago" /> : "never"}
        </Fact>
        <Fact name="Audit">
          <Link className="text-accent-text underline" to={`/audit?key_id=${item.id}`}>
            what it did
          </Link>
        </Fact>
      </Facts>
      {scope !== "read_only" && !item.revoked_at && <Revoke item={item} own={key?.id === item.id} />}
    </SidePanel>
  );
}

function Revoke({ item, own }: { item: Schemas["KeyItem"]; own: boolean }) {
  const client = useQueryClient();
  const [asks, setAsks] = useState(false);
  const revoke = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/keys/{id}", { params: { path: { id: item.id } } })),
    meta: { failed: `The key ${item.name} was not revoked` },
    onSuccess: () => {
      notify(`The key ${item.name} was revoked`);
      void client.invalidateQueries({ queryKey: ["keys"] });
    },
    onSettled: () => setAsks(false),
  });
  return (
    <div>
      <Button kind="danger" onClick={() => setAsks(true)}>
        Revoke
      </Button>
      <Confirm
        open={asks}
        title={`Revoke the key ${item.name}?`}
        verb="Revoke"
        busy={revoke.isPending}
        onConfirm={() => revoke.mutate()}
        onClose={() => setAsks(false)}
      >
        What signs in with it is refused from now on, and a revoked key never becomes valid again.
        {own && " You are signed in with it: your session ends too."}
      </Confirm>
    </div>
  );
}
