// What is set before the server starts, by its configuration file and variables, and what each owner sets for the agent.
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { ask, type ModelSettings } from "@/api/agent";
import type { Schemas } from "@/api/client";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Panel } from "@/components/page";

/** Sections of the configuration file whose values no running server changes; docs/configuration.md has all of them. */
const SECTIONS = [
  ["[images]", "the image of a create that names none, and aliases"],
  ["[preview]", "the domain of previews"],
  ["[egress]", "presets of hosts, and what tiers may reach"],
  ["[launcher]", "how containers are made"],
  ["[metrics]", "how often use is sampled"],
  ["[agent], [langgraph]", "the model of owners that set none, and runs"],
  ["[mcp], [tools], [grpc]", "those APIs"],
] as const;

const text = (value: unknown) =>
  typeof value === "string" ? value : value == null ? "" : JSON.stringify(value);

export function Fixed({ item }: { item: Schemas["SettingsItem"] }) {
  return (
    <>
      <Agent />
      <Panel title="Set before the start">
        <div className="flex flex-col gap-3 p-3">
          <p className="text-xs text-muted">
            The configuration file and variables of the environment set these; a change needs a restart.
          </p>
          <Facts>
            <Fact name="Provider">{text(item.provider_type)}</Fact>
            <Fact name="Default image">{text(item.config_fallback_image)}</Fact>
          </Facts>
          <ul className="flex flex-col gap-1 text-xs text-muted">
            {SECTIONS.map(([name, what]) => (
              <li key={name}>
                <code className="font-mono text-text">{name}</code> {what}
              </li>
            ))}
          </ul>
        </div>
      </Panel>
    </>
  );
}

/** The model of one's own conversations, as it applies. */
function Agent() {
  const { data, error } = useQuery({
    queryKey: ["model-settings"],
    queryFn: ({ signal }) => ask<ModelSettings>("GET", "/settings", undefined, signal),
  });
  return (
    <Panel
      title="Agent"
      actions={
        <Link to="/chat?settings=1" className="text-xs text-accent-text hover:underline">
          Change for your conversations
        </Link>
      }
    >
      <div className="flex flex-col gap-3 p-3">
        {error && <ErrorNote what="The model cannot be shown" error={error} />}
        {data && (
          <Facts>
            <Fact name="Model">{data.model ?? "none is set"}</Fact>
            <Fact name="Provider">{data.provider}</Fact>
            <Fact name="Address">{data.base_url}</Fact>
            <Fact name="Key">{data.has_api_key ? "is set" : "is not set"}</Fact>
            <Fact name="Set by">
              {data.own.model ? "you" : data.model ? "the server's configuration" : null}
            </Fact>
          </Facts>
        )}
      </div>
    </Panel>
  );
}
