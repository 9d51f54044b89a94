// The frame of every page: sign-in where there is no session, else rail, header and the page. The event feed runs as
// long as the session does.
import { useQueryClient } from "@tanstack/react-query";
import { Menu as MenuIcon, Search } from "lucide-react";
import { useEffect, useState } from "react";
import { Outlet, useNavigation } from "react-router";
import { connection, useConnection } from "@/api/connection";
import { follow } from "@/api/feed";
import { useSession } from "@/api/session";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";
import { SignIn } from "@/features/sign-in/page";
import { cx } from "@/lib/cx";
import { Palette } from "./palette";
import { Rail } from "./rail";
import { useShortcuts } from "./shortcuts";

export function Shell() {
  const session = useSession();
  const state = useConnection();
  if (session.isPending) return null;
  if (session.error && !session.data) {
    return (
      <div className="mx-auto max-w-xl p-8">
        <ErrorNote
          what="The console cannot start"
          error={session.error}
          retry={() => void session.refetch()}
        />
      </div>
    );
  }
  if (!session.data) return <SignIn />;
  // What was typed stays on the page behind it.
  return (
    <>
      <Frame />
      {state === "signed-out" && session.data.access === "keys" && (
        <div className="fixed inset-0 z-50 bg-bg">
          <SignIn reason="Your session has ended. Sign in again to go on where you were." />
        </div>
      )}
    </>
  );
}

function Frame() {
  const client = useQueryClient();
  const state = useConnection();
  const [palette, setPalette] = useState(false);
  const [rail, setRail] = useState(false);
  const busy = useNavigation().state === "loading";
  useShortcuts(() => setPalette(true));
  const signedOut = state === "signed-out";
  useEffect(() => {
    if (signedOut) return;
    const end = new AbortController();
    void follow(client, end.signal);
    return () => end.abort();
  }, [client, signedOut]);
  return (
    <div className="flex h-full" inert={signedOut}>
      <a
        href="#main"
        className="sr-only focus:not-sr-only focus:absolute focus:z-50 focus:bg-surface focus:p-2"
      >
        Skip to the page
      </a>
      <Rail open={rail} onClose={() => setRail(false)} />
      <div className="flex min-w-0 flex-1 flex-col">
        <header className="flex h-12 items-center gap-2 border-b px-4">
          <Button kind="quiet" small className="md:hidden" aria-label="Menu" onClick={() => setRail(true)}>
            <MenuIcon size={16} />
          </Button>
          <button
            type="button"
            onClick={() => setPalette(true)}
            className="flex h-8 min-w-0 flex-1 items-center gap-2 rounded border bg-surface px-2 text-muted hover:border-line-strong md:max-w-md"
          >
            <Search size={14} aria-hidden="true" />
            <span className="truncate">Go to a page or a sandbox</span>
            <kbd className="ml-auto font-mono text-xs max-md:hidden">Ctrl K</kbd>
          </button>
          <div className="flex-1 max-md:hidden" />
          <Live />
        </header>
        <Lost />
        <main id="main" tabIndex={-1} aria-busy={busy} className="flex min-h-0 flex-1 flex-col outline-none">
          <Outlet />
        </main>
      </div>
      <Palette open={palette} onClose={() => setPalette(false)} />
    </div>
  );
}

const WORDS = { connecting: "connecting", live: "live", lost: "no answer", "signed-out": "signed out" };

function Live() {
  const state = useConnection();
  return (
    <span role="status" className="flex items-center gap-1.5 text-xs text-muted">
      <span
        aria-hidden="true"
        className={cx("size-2 rounded-full", state === "live" ? "bg-accent" : "border border-warn")}
      />
      {WORDS[state]}
    </span>
  );
}

/** Says that the server is gone. The feed tries again by itself, and every list is read anew when it is back. */
function Lost() {
  const state = useConnection();
  if (state !== "lost") return null;
  return (
    <div role="alert" className="flex items-center gap-3 border-b bg-raised px-4 py-2 text-warn">
      <span className="flex-1">
        The server does not answer. What you typed stays here; the page goes on by itself when the server is
        back.
      </span>
      <Button small onClick={connection.reset}>
        Hide
      </Button>
    </div>
  );
}
