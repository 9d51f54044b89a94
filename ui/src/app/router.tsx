import { createBrowserRouter, Navigate, type RouteObject } from "react-router";
import { Broken, NotFound } from "./not-found";
import { PAGES, type PageEntry } from "./pages";
import { Shell } from "./shell";

type Entry = Pick<PageEntry, "path" | "load" | "children">;

function route({ path, load, children }: Entry): RouteObject {
  const lazy = async () => ({ Component: (await load()).default });
  const inner = children?.map((child): RouteObject => {
    if (child.path) return route(child);
    return {
      index: true,
      errorElement: <Broken />,
      lazy: async () => ({ Component: (await child.load()).default }),
    };
  });
  return { path, lazy, errorElement: <Broken />, children: inner };
}

export const router = createBrowserRouter(
  [
    {
      element: <Shell />,
      hydrateFallbackElement: <p className="p-4 text-muted">Loading…</p>,
      errorElement: <Broken />,
      children: [
        { index: true, element: <Navigate to="/sandboxes" replace /> },
        ...PAGES.map(route),
        { path: "*", element: <NotFound /> },
      ],
    },
  ],
  { basename: "/ui" },
);
