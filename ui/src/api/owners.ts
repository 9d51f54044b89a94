// The trail and the events name owners by their ids; an admin's keys say what they are called.
import { useQuery } from "@tanstack/react-query";
import { shortId } from "@/components/id";
import { keys } from "./keys";
import { useSignedIn } from "./session";

/** What an owner is called; the start of its id where no key says. */
export function useOwnerName(): (id: string) => string {
  const { scope } = useSignedIn();
  const all = useQuery({
    ...keys(),
    enabled: scope === "admin",
  });
  return (id) => all.data?.find((key) => key.owner_id === id)?.owner ?? (id.includes("-") ? shortId(id) : id);
}
