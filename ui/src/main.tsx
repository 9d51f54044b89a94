import { CSPProvider } from "@base-ui/react/csp-provider";
import { MutationCache, QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { RouterProvider } from "react-router";
import { ApiError } from "./api/errors";
import { router } from "./app/router";
import { notifyError, Toasts } from "./components/toast";
import { nonce, nonceStyles } from "./lib/nonce";
import { applyTheme } from "./lib/theme";
import "./styles.css";

declare module "@tanstack/react-query" {
  interface Register {
    mutationMeta: {
      /** What was not done, where no page shows the error itself: "The sandbox was not stopped". */
      failed?: string;
    };
  }
}

applyTheme();
nonceStyles();
// A page that the browser kept, to go back to, may be of a session that has ended.
addEventListener("pageshow", (event) => event.persisted && location.reload());

const client = new QueryClient({
  defaultOptions: {
    queries: {
      networkMode: "always",
      // The feed says what has changed.
      staleTime: 30_000,
      refetchOnWindowFocus: false,
      refetchOnReconnect: false,
      retry: (times, error) => error instanceof ApiError && error.isUnreachable && times < 3,
    },
    mutations: { networkMode: "always" },
  },
  mutationCache: new MutationCache({
    onError: (error, _variables, _context, mutation) => {
      if (mutation.meta?.failed) notifyError(mutation.meta.failed, error);
    },
  }),
});

const root = document.getElementById("root");
if (root) {
  createRoot(root).render(
    <StrictMode>
      <CSPProvider nonce={nonce}>
        <QueryClientProvider client={client}>
          <Toasts>
            <RouterProvider router={router} />
          </Toasts>
        </QueryClientProvider>
      </CSPProvider>
    </StrictMode>,
  );
}
