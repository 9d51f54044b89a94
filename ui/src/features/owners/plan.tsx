import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "@/api/client";
import { settings as settingsQuery } from "@/api/queries";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input } from "@/components/field";
import { SidePanel } from "@/components/side-panel";
import { notify } from "@/components/toast";
import { curl } from "@/lib/shell";
import { DEFAULT_PLAN, QUOTAS, type Settings } from "./model";

interface Props {
  settings: Settings;
  /** Its name; `new` for one that is made here. */
  plan: string;
  onClose: () => void;
}

type Body = Schemas["SettingsBody"];
const NEW = "new";

export function PlanForm({ settings, plan, onClose }: Props) {
  const client = useQueryClient();
  const { plans, owners } = settings.atoll;
  const isDefault = plan === DEFAULT_PLAN;
  const base: Record<string, number> = {
    max_per_user: settings.default_max_per_user,
    ...settings.atoll.plan,
  };
  const own: Record<string, number> = isDefault ? base : (plans[plan] ?? {});
  const [name, setName] = useState(plan === NEW ? "" : plan);
  const [texts, setTexts] = useState<Record<string, string>>(
    Object.fromEntries(Object.entries(own).map(([key, value]) => [key, String(value)])),
  );
  const figures = Object.fromEntries(
    Object.entries(texts)
      .filter(([, text]) => text !== "")
      .map(([key, text]) => [key, Number(text)]),
  );
  const body: Body = isDefault ? defaultBody(figures) : { atoll: { plans: { ...plans, [name]: figures } } };
  const users = Object.values(owners).filter((each) => each === plan).length;
  const change = useMutation({
    mutationFn: (next: Body) => unwrap(api.PATCH("/api/v1/settings/sandbox", { body: next })),
    onSuccess: (changed) => {
      client.setQueryData(settingsQuery().queryKey, changed);
      notify(`The plan ${name} was changed`);
      onClose();
    },
  });
  const remove = () => {
    const { [plan]: _gone, ...others } = plans;
    change.mutate({ atoll: { plans: others } });
  };
  const title = plan === NEW ? "Create a plan" : `The plan ${plan}`;
  return (
    <SidePanel title={title} label={title} onClose={onClose}>
      <form
        className="flex flex-col gap-3"
        onSubmit={(event) => {
          event.preventDefault();
          change.mutate(body);
        }}
      >
        {plan === NEW && (
          <Field label="Name" hint="Letters, digits, dot, underscore, hyphen.">
            {(props) => (
              <Input
                {...props}
                required
                pattern="[A-Za-z0-9_.\-]{1,64}"
                value={name}
                onChange={(event) => setName(event.target.value)}
              />
            )}
          </Field>
        )}
        <div className="grid grid-cols-2 gap-x-3 gap-y-2">
          {QUOTAS.map(([key, label]) => (
            <Field key={key} label={label} hint={isDefault ? "" : `${base[key]} where it is empty`}>
              {(props) => (
                <Input
                  {...props}
                  type="number"
                  min={0}
                  required={isDefault}
                  value={texts[key] ?? ""}
                  onChange={(event) => setTexts((before) => ({ ...before, [key]: event.target.value }))}
                />
              )}
            </Field>
          ))}
        </div>
        {change.error && <ErrorNote what="The plan was not changed" error={change.error} />}
        <div className="flex flex-wrap items-center gap-2">
          <Button kind="primary" type="submit" disabled={!name || change.isPending}>
            Save
          </Button>
          {!isDefault && plan !== NEW && (
            <Button
              kind="danger"
              disabled={users > 0 || change.isPending}
              title={users > 0 ? "Owners have it; give them another plan first" : undefined}
              onClick={remove}
            >
              Remove
            </Button>
          )}
          <CopyAs curl={curl("PATCH", "/api/v1/settings/sandbox", body)} />
        </div>
      </form>
    </SidePanel>
  );
}

function defaultBody({ max_per_user, ...plan }: Record<string, number>): Body {
  return { default_max_per_user: max_per_user, atoll: { plan } };
}
