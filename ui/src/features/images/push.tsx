import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "@/api/client";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { Field, Input } from "@/components/field";
import { Credentials } from "./credentials";
import type { Image } from "./queries";

/** Sends an image to a registry. The password is sent once and kept nowhere. */
export function PushForm({ image }: { image: Image }) {
  const [reference, setReference] = useState("");
  const [login, setLogin] = useState({ username: "", password: "" });
  const push = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/sandbox-images/{image}/push", {
          params: { path: { image: image.id } },
          body: {
            reference,
            username: login.username || undefined,
            password: login.password || undefined,
          },
        }),
      ),
  });
  return (
    <details className="rounded border bg-surface">
      <summary className="cursor-pointer px-3 py-2">Push to a registry</summary>
      <form
        className="flex flex-col gap-3 border-t p-3"
        onSubmit={(event) => {
          event.preventDefault();
          push.mutate();
        }}
      >
        <Field label="To" hint="HOST/NAME:TAG">
          {(props) => (
            <Input
              {...props}
              required
              value={reference}
              onChange={(event) => setReference(event.target.value)}
            />
          )}
        </Field>
        <Credentials login={login} onLogin={setLogin} />
        {push.error && <ErrorNote what="The image was not pushed" error={push.error} />}
        {push.data && (
          <p role="status" className="break-all">
            The registry has it: <code className="font-mono text-xs">{push.data.digest}</code>
          </p>
        )}
        <div>
          <Button type="submit" disabled={!reference || push.isPending}>
            {push.isPending ? "Pushing…" : "Push"}
          </Button>
        </div>
      </form>
    </details>
  );
}
