import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, unwrap } from "@/api/client";
import { settings as settingsQuery } from "@/api/queries";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Field, Select } from "@/components/field";
import { Id } from "@/components/id";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { notify } from "@/components/toast";
import { bytes, count, mebibytes } from "@/lib/format";
import { DEFAULT_PLAN, type Owner, operationsOf, owner as ownerQuery, quotaOf, type Settings } from "./model";

interface Props {
  id: string;
  settings: Settings;
  onClose: () => void;
}

export function OwnerDetails({ id, settings, onClose }: Props) {
  const { data: owner, error, isPending } = useQuery(ownerQuery(id));
  const title = owner?.owner ?? "Owner";
  return (
    <SidePanel title={title} label={`The owner ${title}`} onClose={onClose}>
      {error && <ErrorNote what="What is used cannot be shown" error={error} />}
      {isPending && <Loading />}
      {owner === null && <p className="text-muted">There is no such owner any more.</p>}
      {owner && <Details owner={owner} settings={settings} />}
    </SidePanel>
  );
}

function Details({ owner, settings }: { owner: Owner; settings: Settings }) {
  const quota = quotaOf(settings, owner.plan);
  const operations = useQuery(operationsOf(owner.owner_id));
  return (
    <>
      <Facts>
        <Fact name="Id">
          <Id id={owner.owner_id} />
        </Fact>
        <Fact name="Keys">
          <Link to="/keys" className="text-accent-text underline">
            {owner.keys}
          </Link>
        </Fact>
        <Fact name="Audit">
          <Link to={`/audit?owner=${owner.owner_id}`} className="text-accent-text underline">
            {operations.data
              ? `${count(operations.data.count)} operations, ${count(operations.data.failed)} failed`
              : "operations"}
          </Link>
        </Fact>
      </Facts>
      <ChoosePlan owner={owner} settings={settings} />
      <div className="flex flex-col gap-2">
        <Bar name="Sandboxes at a time" used={owner.sandboxes_at_a_time} most={quota.max_per_user} />
        <Bar name="Sandboxes in all" used={owner.sandboxes} most={quota.sandboxes} />
        <Bar name="Volumes" used={owner.volumes} most={quota.volumes} />
        <Bar
          name="Disk promised"
          used={owner.disk_mb}
          most={quota.disk_mb}
          text={`${mebibytes(owner.disk_mb)} of ${mebibytes(quota.disk_mb)}`}
        />
        <Bar name="Skills" used={owner.skills} most={quota.skills} />
        <Bar
          name="Packages of skills"
          used={owner.skills_bytes / (1024 * 1024)}
          most={quota.skills_mb}
          text={`${bytes(owner.skills_bytes)} of ${mebibytes(quota.skills_mb)}`}
        />
      </div>
    </>
  );
}

interface BarProps {
  name: string;
  used: number;
  most: number;
  text?: string;
}

function Bar({ name, used, most, text = `${count(used)} of ${count(most)}` }: BarProps) {
  const share = most > 0 ? Math.min(1, used / most) : 1;
  return (
    <div>
      <div className="flex justify-between text-xs">
        <span className="text-muted">{name}</span>
        <span>{text}</span>
      </div>
      <div className="mt-1 h-1 rounded bg-raised" aria-hidden="true">
        <div
          className={share >= 1 ? "h-1 rounded bg-warn" : "h-1 rounded bg-accent"}
          style={{ width: `${share * 100}%` }}
        />
      </div>
    </div>
  );
}

/** Which plan the owner has. The setting names owners by name or id; one that is there by its id is taken out. */
function ChoosePlan({ owner, settings }: { owner: Owner; settings: Settings }) {
  const client = useQueryClient();
  const choose = useMutation({
    mutationFn: async (plan: string) => {
      const { [owner.owner]: _name, [owner.owner_id]: _id, ...others } = settings.atoll.owners;
      const owners = plan === DEFAULT_PLAN ? others : { ...others, [owner.owner]: plan };
      return {
        plan,
        changed: await unwrap(api.PATCH("/api/v1/settings/sandbox", { body: { atoll: { owners } } })),
      };
    },
    meta: { failed: `The plan of ${owner.owner} was not changed` },
    onSuccess: ({ plan, changed }) => {
      client.setQueryData(settingsQuery().queryKey, changed);
      notify(`${owner.owner} has the plan ${plan}`);
      return client.invalidateQueries({ queryKey: ["owners"] });
    },
  });
  return (
    <Field label="Plan" hint="It applies at once; what is there already stays.">
      {(props) => (
        <Select
          {...props}
          value={choose.isPending ? choose.variables : owner.plan}
          disabled={choose.isPending}
          onChange={(event) => choose.mutate(event.target.value)}
        >
          {[DEFAULT_PLAN, ...Object.keys(settings.atoll.plans)].map((plan) => (
            <option key={plan}>{plan}</option>
          ))}
        </Select>
      )}
    </Field>
  );
}
