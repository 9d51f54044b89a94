// The parts of a sandbox's page, in the order of their tabs.
import type { ComponentType } from "react";

interface Tab {
  path: string;
  title: string;
  load: () => Promise<{ default: ComponentType }>;
}

export const TABS: Tab[] = [
  { path: "", title: "Overview", load: () => import("./overview/page") },
  { path: "terminal", title: "Terminal", load: () => import("./terminal/page") },
  { path: "commands", title: "Commands", load: () => import("./commands/page") },
  { path: "files", title: "Files", load: () => import("./files/page") },
  { path: "notebook", title: "Notebook", load: () => import("./notebook/page") },
  { path: "network", title: "Network", load: () => import("./network/page") },
  { path: "ports", title: "Ports", load: () => import("./ports/page") },
  { path: "snapshots", title: "Snapshots", load: () => import("./snapshots/page") },
  { path: "skills", title: "Skills", load: () => import("./skills/page") },
  { path: "audit", title: "Audit", load: () => import("./audit/page") },
];
