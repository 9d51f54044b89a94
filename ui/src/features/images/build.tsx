// One build and what it says, live. It goes on without this page.
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "react-router";
import { api, type Schemas, unwrap } from "@/api/client";
import { resumed, type SseEvent } from "@/api/sse";
import { Button } from "@/components/button";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Fact, Facts } from "@/components/facts";
import { Id } from "@/components/id";
import { Mark } from "@/components/mark";
import { keep, OutputBox, type Piece } from "@/components/output-box";
import { Loading } from "@/components/page";
import { SidePanel } from "@/components/side-panel";
import { Time } from "@/components/time";
import { bytes } from "@/lib/format";
import { type Build, fullName, TONES } from "./queries";

type Progress = Schemas["Progress"];

/** Reads the log from its beginning and follows it to the end of the build, over connections that break off. */
function useLog(id: string) {
  const client = useQueryClient();
  const [pieces, setPieces] = useState<Piece[]>([]);
  const [state, setState] = useState<{ ended: boolean; progress?: Progress; error?: unknown }>({
    ended: false,
  });
  useEffect(() => {
    const end = new AbortController();
    const read = async () => {
      const path = `/api/v1/sandbox-images/builds/${id}/log?follow=true`;
      const isLast = ({ kind }: SseEvent) => kind === "end" || kind === "error";
      for await (const event of resumed(path, { signal: end.signal }, isLast)) {
        if (!event.data) continue;
        const data: unknown = JSON.parse(event.data);
        if (event.kind === "log") {
          const { text } = data as { text: string };
          setPieces((before) => keep(before, { stream: "stdout", text }));
        } else if (event.kind === "progress") setState({ ended: false, progress: data as Progress });
        else if (event.kind === "error") throw new Error((data as { message: string }).message);
      }
      if (end.signal.aborted) return;
      setState({ ended: true });
      void client.invalidateQueries({ queryKey: ["images"] });
    };
    setPieces([]);
    read().catch((error: unknown) => {
      if (!end.signal.aborted) setState({ ended: true, error });
    });
    return () => end.abort();
  }, [id, client]);
  return { pieces, ...state };
}

export function BuildDetails({ id, onClose }: { id: string; onClose: () => void }) {
  const params = { path: { build_id: id } };
  const build = useQuery({
    queryKey: ["images", "build", id],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/sandbox-images/builds/{build_id}", { params, signal })),
  });
  const log = useLog(id);
  const title = build.data ? `Build of ${fullName(build.data)}` : "Build";
  return (
    <SidePanel title={title} label={title} onClose={onClose}>
      {build.error && <ErrorNote what="The build cannot be shown" error={build.error} />}
      {build.isPending && <Loading />}
      {build.data && <About build={build.data} />}
      {log.progress && <Bar progress={log.progress} />}
      <OutputBox
        label="Log of the build"
        pieces={log.pieces}
        ended={log.ended}
        error={log.error}
        download={{ href: `/api/v1/sandbox-images/builds/${id}/log`, name: `build-${id}.txt` }}
      />
      {build.data && <Next build={build.data} onClose={onClose} />}
    </SidePanel>
  );
}

function About({ build }: { build: Build }) {
  return (
    <Facts>
      <Fact name="Status">
        <Mark tone={TONES[build.status]}>{build.status}</Mark>
      </Fact>
      <Fact name="Error">{build.error && <span className="text-danger">{build.error}</span>}</Fact>
      <Fact name="Id">
        <Id id={build.build_id} />
      </Fact>
      <Fact name="From">{build.source}</Fact>
      <Fact name="Begun">
        <Time at={build.created_at} suffix=" ago" />
      </Fact>
    </Facts>
  );
}

function Bar({ progress }: { progress: Progress }) {
  const { step, steps, done_bytes, total_bytes } = progress;
  const text =
    total_bytes > 0
      ? `${bytes(done_bytes)} of ${bytes(total_bytes)}`
      : steps > 0
        ? `step ${step} of ${steps}`
        : "";
  if (!text) return null;
  return (
    <div role="status" className="text-xs text-muted">
      {text}
      <progress
        aria-label="How far the build is"
        className="mt-1 block w-full"
        max={total_bytes || steps}
        value={total_bytes ? done_bytes : step}
      />
    </div>
  );
}

function Next({ build, onClose }: { build: Build; onClose: () => void }) {
  const client = useQueryClient();
  const running = build.status === "running";
  const end = useMutation({
    mutationFn: () =>
      unwrap(
        api.DELETE("/api/v1/sandbox-images/builds/{build_id}", {
          params: { path: { build_id: build.build_id } },
        }),
      ),
    meta: { failed: running ? "The build was not cancelled" : "The record was not removed" },
    onSuccess: () => {
      if (!running) onClose();
      void client.invalidateQueries({ queryKey: ["images"] });
    },
  });
  return (
    <div className="flex flex-col gap-3">
      {build.status === "done" && (
        <>
          <p>
            <Link className="text-accent-text underline" to={`/images?image=${build.image_id}`}>
              {fullName(build)}
            </Link>{" "}
            is ready.
          </p>
          <CopyLine text={`atoll create --image ${fullName(build)}`} />
        </>
      )}
      <div>
        <Button kind={running ? "danger" : "plain"} disabled={end.isPending} onClick={() => end.mutate()}>
          {running ? "Cancel the build" : "Remove the record and its log"}
        </Button>
      </div>
    </div>
  );
}
