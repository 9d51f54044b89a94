// The catalogue: templates that ship, each built with one click, and the packages that an image of one's own is made of.
import { useQuery } from "@tanstack/react-query";
import { Hammer } from "lucide-react";
import type { Schemas } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Mark } from "@/components/mark";
import { Loading, Panel, useTitle } from "@/components/page";
import { Time } from "@/components/time";
import { notifyError } from "@/components/toast";
import { mebibytes } from "@/lib/format";
import { curl } from "@/lib/shell";
import { Compose } from "./compose";
import { useStartBuild } from "./new-build";
import { templates } from "./queries";

type Template = Schemas["TemplateItem"];

export default function Catalogue() {
  useTitle("Catalogue of images");
  const { scope } = useSignedIn();
  const list = useQuery(templates());
  return (
    <div className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto p-4">
      {list.error && <ErrorNote what="The templates cannot be listed" error={list.error} />}
      {list.isPending && <Loading />}
      {list.data && (
        <div className="grid gap-3 md:grid-cols-2 xl:grid-cols-3">
          {list.data.templates.map((template) => (
            <Card key={template.id} template={template} canBuild={scope === "admin"} />
          ))}
        </div>
      )}
      <Compose canBuild={scope === "admin"} />
    </div>
  );
}

function Card({ template, canBuild }: { template: Template; canBuild: boolean }) {
  const start = useStartBuild();
  const { packages, built } = template;
  const body = { template: template.id, replace: built };
  const parts = [
    template.base && `on ${template.base}`,
    ...(["debian", "pip", "npm", "r"] as const).map(
      (manager) => packages[manager].length > 0 && `${packages[manager].length} of ${manager}`,
    ),
  ];
  return (
    <Panel
      title={template.name}
      actions={
        <CopyAs
          cli={`atoll image build --template ${template.id}${built ? " --replace" : ""}`}
          curl={curl("POST", "/api/v1/sandbox-images", body)}
        />
      }
    >
      <div className="flex flex-col gap-2 p-3">
        <p>{template.description}</p>
        <p className="text-xs text-muted">{parts.filter(Boolean).join(" · ")}</p>
        <div className="flex items-center gap-3">
          {canBuild && (
            <Button
              small
              icon={<Hammer size={14} />}
              disabled={start.isPending}
              onClick={() =>
                start.mutate(body, {
                  onError: (error) => notifyError(`${template.name} is not being built`, error),
                })
              }
            >
              {built ? "Build again" : "Build"}
            </Button>
          )}
          <span className="text-xs text-muted">
            {built ? (
              <Mark tone="works">
                built {template.built_at && <Time at={template.built_at} suffix=" ago" />}
                {template.size_mb ? `, ${mebibytes(template.size_mb)}` : ""}
              </Mark>
            ) : (
              <Mark tone="off">not built</Mark>
            )}
          </span>
        </div>
      </div>
    </Panel>
  );
}
