import { useQueryClient } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { refreshAll } from "@/api/queries";
import { signIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyLine } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Field, Input } from "@/components/field";
import { useTitle } from "@/components/page";

/** Exchanges a key for a session cookie. The key is in this form until then, and nowhere else. */
export function SignIn({ reason }: { reason?: string }) {
  useTitle("Sign in");
  const client = useQueryClient();
  const [key, setKey] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setBusy(true);
    setError(undefined);
    try {
      const session = await signIn(key.trim());
      setKey("");
      client.setQueryData(["session"], session);
      void refreshAll(client);
    } catch (refused) {
      setError(refused);
    } finally {
      setBusy(false);
    }
  };
  return (
    <main className="mx-auto flex min-h-full w-full max-w-sm flex-col justify-center gap-4 p-4">
      <div className="flex items-center gap-2">
        <img src="/ui/mark.svg" alt="" className="size-6" />
        <h1 className="text-lg font-medium">Atoll</h1>
      </div>
      {reason && <p className="text-muted">{reason}</p>}
      <form onSubmit={submit} className="flex flex-col gap-3">
        <Field label="Key" hint="It is exchanged for a session and is not kept in this browser.">
          {(props) => (
            <Input
              {...props}
              type="password"
              autoComplete="current-password"
              autoFocus
              required
              placeholder="atoll_…"
              value={key}
              onChange={(event) => setKey(event.target.value)}
            />
          )}
        </Field>
        {error !== undefined && <ErrorNote what="You are not signed in" error={error} />}
        <Button kind="primary" type="submit" disabled={busy || !key.trim()}>
          Sign in
        </Button>
      </form>
      <div className="flex flex-col gap-2 text-xs text-muted">
        <p>The first start of the server prints an admin's key. To make another one:</p>
        <CopyLine text="atoll keys create console" />
      </div>
    </main>
  );
}
