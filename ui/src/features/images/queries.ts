import { queryOptions, useQueryClient } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "@/api/client";
import { useFeed } from "@/api/use-feed";
import type { Tone } from "@/components/mark";

export type Image = Schemas["Image"];
export type Build = Schemas["Build"];

export const imageQuery = (image: string) =>
  queryOptions({
    queryKey: ["images", image],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/sandbox-images/{image}", { params: { path: { image } }, signal })),
  });

export const templates = () =>
  queryOptions({
    queryKey: ["images", "templates"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/sandbox-images/templates", { signal })),
  });

export const packages = () =>
  queryOptions({
    queryKey: ["packages"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/sandbox-images/packages", { signal })),
    staleTime: Number.POSITIVE_INFINITY,
  });

export const builds = () =>
  queryOptions({
    queryKey: ["images", "builds"],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/sandbox-images/builds", { signal })),
  });

/** Events about images read everything about them again. */
export function useImageEvents(): void {
  const client = useQueryClient();
  useFeed((event) => {
    if (event.kind.startsWith("image.")) void client.invalidateQueries({ queryKey: ["images"] });
  });
}

export const fullName = ({ name, tag }: { name: string; tag?: string | null }) =>
  tag ? `${name}:${tag}` : name;

export const TONES: Record<Build["status"], Tone> = {
  running: "waits",
  done: "works",
  failed: "lost",
  cancelled: "off",
};
