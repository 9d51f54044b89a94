import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import { api, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { curl, quote } from "@/lib/shell";
import { Credentials } from "./credentials";
import { Replace } from "./new-build";

export function PullForm({ onClose }: { onClose: () => void }) {
  const client = useQueryClient();
  const navigate = useNavigate();
  const [reference, setReference] = useState("");
  const [name, setName] = useState("");
  const [replace, setReplace] = useState(false);
  const [login, setLogin] = useState({ username: "", password: "" });
  const body = { reference, name: name || undefined, replace };
  const pull = useMutation({
    mutationFn: () => {
      const { username, password } = login;
      const who = username ? { username, password } : {};
      return unwrap(api.POST("/api/v1/sandbox-images/pull", { body: { ...body, ...who } }));
    },
    onSuccess: (build) => {
      void client.invalidateQueries({ queryKey: ["images"] });
      void navigate(`/images/builds?build=${build.build_id}`);
    },
  });
  const fields = pull.error ? asApiError(pull.error).fields : {};
  return (
    <SidePanel title="Pull from a registry" label="Pull from a registry" onClose={onClose}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          pull.mutate();
        }}
      >
        <Field label="Reference" error={fields.reference} hint="HOST/NAME, with :TAG or @sha256:…">
          {(props) => (
            <Input
              {...props}
              required
              value={reference}
              onChange={(event) => setReference(event.target.value)}
            />
          )}
        </Field>
        <Field label="Name here" error={fields.name} hint="As the registry calls it where it is empty.">
          {(props) => <Input {...props} value={name} onChange={(event) => setName(event.target.value)} />}
        </Field>
        <Credentials login={login} onLogin={setLogin} />
        <Replace checked={replace} onChange={setReplace} />
        {pull.error && <ErrorNote what="The pull was not started" error={pull.error} />}
        <div className="flex items-center gap-2">
          <Button kind="primary" type="submit" disabled={!reference || pull.isPending}>
            Pull
          </Button>
          <CopyAs
            cli={`atoll image pull ${quote(reference || "HOST/NAME:TAG")}`}
            curl={curl("POST", "/api/v1/sandbox-images/pull", body)}
          />
        </div>
      </form>
    </SidePanel>
  );
}
