// Signing in and out. The key is sent once and kept nowhere; the cookie that comes back cannot be read by scripts.
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { draftsOf, forgetDrafts } from "@/lib/use-draft";
import { request, send } from "./client";
import { connection } from "./connection";
import { errorOf } from "./errors";

export interface Session {
  /** Whether the server asks for keys at all. */
  access: "keys" | "open";
  owner: string;
  scope: "admin" | "user" | "read_only";
  tier: string | null;
  key: { id: string; name: string } | null;
  /** When the session ends; null where the server asks for no keys. */
  expires_at: string | null;
  /** What a new sandbox gets that names no limits, of an image that has none of its own. */
  defaults: Limits;
  /** The image of a new sandbox that names none, and after how many seconds without work it is paused. */
  default_image: string;
  default_idle_timeout_seconds: number;
  /** The most that its limits may be by the key's tier; an admin has no ceiling. */
  ceiling: Limits | null;
  version: string;
}

export interface Limits {
  memory_mb: number;
  cpu_cores: number;
  disk_mb: number;
  processes: number;
  /** What the tier lets it reach. */
  network: "none" | "restricted" | "full" | null;
}

const PATH = "/ui/session";

/** Whom the page was made for, from the first answer on. */
let shown: Session | undefined;

/** Another key of the same owner with the same rights is the same caller. */
const nameOf = ({ owner, scope, tier }: Session) => JSON.stringify([owner, scope, tier]);

/** Takes a session over. A page that was made for another caller goes, with all that it knows: the promise never settles. */
async function become(session: Session): Promise<Session> {
  draftsOf(nameOf(session));
  if (shown && nameOf(shown) !== nameOf(session)) {
    location.assign("/ui/");
    return new Promise(() => {});
  }
  shown = session;
  return session;
}

async function current(): Promise<Session | null> {
  const response = await request(PATH);
  // The page of a session that has ended stays, with what was typed, behind the form that signs in again.
  if (response.status === 401) return shown ?? null;
  if (!response.ok) throw errorOf(response.status, await response.json().catch(() => undefined));
  return become((await response.json()) as Session);
}

export async function signIn(key: string): Promise<Session> {
  const headers = { "Content-Type": "application/json" };
  const response = await send(PATH, { method: "POST", headers, body: JSON.stringify({ key }) });
  const session = await become((await response.json()) as Session);
  connection.reset();
  return session;
}

/** Null: not signed in. Another tab may have signed in as another caller meanwhile, so it is asked again when this one is
 * looked at. */
export function useSession() {
  return useQuery({
    queryKey: ["session"],
    queryFn: current,
    staleTime: Number.POSITIVE_INFINITY,
    refetchOnWindowFocus: "always",
  });
}

/** The session of a page that is only shown with one. */
export function useSignedIn(): Session {
  const { data } = useSession();
  if (!data) throw new Error("this page needs a session");
  return data;
}

export function useSignOut(): () => Promise<void> {
  const client = useQueryClient();
  return async () => {
    await send(PATH, { method: "DELETE" });
    client.clear();
    forgetDrafts();
    location.assign("/ui/");
  };
}
