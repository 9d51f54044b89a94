import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import { Input } from "@/components/field";

/** Gives a snapshot another label; one that has a label is kept until it is deleted. */
export function Label({ snapshot }: { snapshot: Schemas["SnapshotItem"] }) {
  const client = useQueryClient();
  const [editing, setEditing] = useState(false);
  const change = useMutation({
    mutationFn: (label: string) =>
      unwrap(
        api.PATCH("/api/v1/sandboxes/{id}/snapshots/{sid}", {
          params: { path: { id: snapshot.sandbox_id, sid: snapshot.id } },
          body: { label: label || null },
        }),
      ),
    onSuccess: () => {
      setEditing(false);
      return refreshSandbox(client, snapshot.sandbox_id);
    },
    meta: { failed: "The label was not changed" },
  });
  if (!editing) {
    return (
      <Button small onClick={() => setEditing(true)}>
        {snapshot.label ? "Change its label" : "Label it"}
      </Button>
    );
  }
  return (
    <form
      className="flex items-center gap-1"
      onSubmit={(event) => {
        event.preventDefault();
        change.mutate(String(new FormData(event.currentTarget).get("label")).trim());
      }}
    >
      <Input
        name="label"
        aria-label="New label"
        defaultValue={snapshot.label ?? ""}
        autoFocus
        className="h-7 w-44 text-xs"
        onKeyDown={(event) => event.key === "Escape" && setEditing(false)}
      />
      <Button small type="submit" disabled={change.isPending}>
        Keep
      </Button>
    </form>
  );
}
