// The preview links of a sandbox that are valid. The server keeps no addresses, so those that were made in this page alone
// can be copied.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ExternalLink } from "lucide-react";
import { api, type Schemas, unwrap } from "@/api/client";
import { Button, buttonClass } from "@/components/button";
import { CopyAs, CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { shortId } from "@/components/id";
import { Panel } from "@/components/page";
import { Time } from "@/components/time";
import { notify } from "@/components/toast";
import { duration } from "@/lib/format";
import { curl } from "@/lib/shell";
import { useNow } from "@/lib/use-now";
import { previewTokens } from "../queries";

export type MadeLink = Schemas["PreviewTokenItem"];

interface Props {
  sandbox: string;
  /** Those that were made in this page. */
  made: MadeLink[];
  readOnly: boolean;
}

export function Links({ sandbox, made, readOnly }: Props) {
  const now = useNow();
  const { data, error } = useQuery(previewTokens(sandbox));
  const valid = data?.filter((link) => new Date(link.expires_at).getTime() > now);
  if (error) return <ErrorNote what="The preview links cannot be listed" error={error} />;
  if (!valid?.length) return null;
  return (
    <Panel title="Preview links">
      <p className="border-b px-3 py-1.5 text-xs text-muted">
        Anyone who has a link sees the page until the link ends: by itself, with the sandbox, or when it is
        revoked. A link is shown once, when it is made; copy it then.
      </p>
      <ul aria-label="Preview links">
        {valid.map((link) => (
          <LinkRow
            key={link.id}
            sandbox={sandbox}
            link={link}
            made={made.find((each) => each.id === link.id)}
            left={new Date(link.expires_at).getTime() - now}
            readOnly={readOnly}
          />
        ))}
      </ul>
    </Panel>
  );
}

interface RowProps {
  sandbox: string;
  link: Schemas["ValidPreviewToken"];
  made: MadeLink | undefined;
  left: number;
  readOnly: boolean;
}

function LinkRow({ sandbox, link, made, left, readOnly }: RowProps) {
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () =>
      unwrap(
        api.DELETE("/api/v1/sandboxes/{id}/preview-tokens/{token_id}", {
          params: { path: { id: sandbox, token_id: link.id } },
        }),
      ),
    onSuccess: () => notify("The link is revoked"),
    onSettled: () => client.invalidateQueries(previewTokens(sandbox)),
    meta: { failed: "The link was not revoked" },
  });
  const path = `/api/v1/sandboxes/${sandbox}/preview-tokens`;
  const url = made?.host_url ?? made?.url;
  return (
    <li className="flex min-h-9 flex-wrap items-center gap-2 border-b px-3 py-1 last:border-b-0">
      <span className="w-16 font-mono">{link.port ?? "all"}</span>
      <span className="font-mono text-xs text-muted">{shortId(link.id)}</span>
      <div className="min-w-0 flex-1 max-md:basis-full">{url && <CopyLine text={url} />}</div>
      <span className="text-xs text-muted">
        made <Time at={link.created_at} suffix=" ago" />
      </span>
      <span className="text-xs text-muted" title={new Date(link.expires_at).toLocaleString()}>
        ends in {duration(left)}
      </span>
      {url && (
        <a className={buttonClass("plain", true)} href={url} target="_blank" rel="noopener noreferrer">
          <ExternalLink size={14} />
          Open
        </a>
      )}
      {!readOnly && (
        <CopyAs
          small
          more={{
            Revoke: {
              cli: `atoll preview ${sandbox} --revoke ${link.id}`,
              curl: curl("DELETE", `${path}/${link.id}`),
            },
            List: { cli: `atoll preview ${sandbox} --list`, curl: curl("GET", path) },
          }}
        />
      )}
      {!readOnly && (
        <Button
          small
          kind="danger"
          disabled={revoke.isPending}
          aria-label={`Revoke the link ${shortId(link.id)}`}
          onClick={() => revoke.mutate()}
        >
          Revoke
        </Button>
      )}
    </li>
  );
}
