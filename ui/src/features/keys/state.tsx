import type { Schemas } from "@/api/client";
import { Mark } from "@/components/mark";

/** Whether a key is worth anything. */
export function KeyState({ item }: { item: Schemas["KeyItem"] }) {
  if (item.revoked_at) return <Mark tone="lost">revoked</Mark>;
  if (item.expires_at && new Date(item.expires_at) < new Date()) return <Mark tone="off">expired</Mark>;
  return <Mark tone="works">valid</Mark>;
}
