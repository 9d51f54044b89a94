import type { Schemas } from "@/api/client";

type Image = Pick<Schemas["Image"], "id" | "name" | "tags" | "is_builtin">;

/** What a create may call an image: NAME:TAG with each of its tags. Without any it has its id alone, but for `host`. */
export function imageNames({ id, name, tags, is_builtin }: Image): string[] {
  if (tags.length > 0) return tags.map((tag) => `${name}:${tag}`);
  return [is_builtin ? name : id];
}
