// The policy as a form.
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { asApiError } from "@/api/errors";
import { refreshSandbox } from "@/api/queries";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Select } from "@/components/field";
import { Panel } from "@/components/page";
import { PolicyFields } from "@/components/policy-fields";
import { notify } from "@/components/toast";
import { draftOf, MODES, type Mode, policyOf, policyWords } from "@/lib/egress-policy";
import { curl } from "@/lib/shell";

interface Props {
  sandbox: string;
  info: Schemas["EgressInfo"];
  readOnly: boolean;
}

export function PolicyForm({ sandbox, info, readOnly }: Props) {
  const client = useQueryClient();
  const [draft, setDraft] = useState(draftOf(info.policy));
  const save = useMutation({
    mutationFn: () => {
      const request = { params: { path: { id: sandbox } }, body: policyOf(draft) };
      return unwrap(api.PUT("/api/v1/sandboxes/{id}/egress", request));
    },
    onSuccess: () => {
      notify("The policy is in force");
      return refreshSandbox(client, sandbox);
    },
  });
  const words = policyWords(draft);
  const fields = save.error ? asApiError(save.error).fields : {};
  return (
    <Panel title="Policy">
      <form
        className="flex flex-col gap-2 p-3"
        onSubmit={(event) => {
          event.preventDefault();
          save.mutate();
        }}
      >
        <fieldset disabled={readOnly} className="grid gap-x-4 gap-y-1 md:grid-cols-2">
          <Field label="Mode" error={fields.mode} hint={MODES[draft.mode]} className="md:col-span-2">
            {(props) => (
              <Select
                {...props}
                value={draft.mode}
                onChange={(event) => setDraft({ ...draft, mode: event.target.value as Mode })}
                className="max-w-60"
              >
                {Object.keys(MODES).map((each) => (
                  <option key={each}>{each}</option>
                ))}
              </Select>
            )}
          </Field>
          <PolicyFields
            draft={draft}
            fields={fields}
            onChange={(changes) => setDraft({ ...draft, ...changes })}
          />
        </fieldset>
        {save.error && <ErrorNote what="The policy was not changed" error={save.error} />}
        {!readOnly && (
          <div className="flex items-center gap-2">
            <Button type="submit" kind="primary" disabled={save.isPending}>
              Apply
            </Button>
            <CopyAs
              cli={words && [`atoll egress set ${sandbox} --mode ${draft.mode}`, ...words].join(" ")}
              curl={curl("PUT", `/api/v1/sandboxes/${sandbox}/egress`, policyOf(draft))}
            />
          </div>
        )}
      </form>
    </Panel>
  );
}
