// Every page of the console: one table for the router, the rail and the command palette. A feature's module exports its
// component as default and is loaded when the page is first opened.
import {
  Activity,
  BookMarked,
  Box,
  Flame,
  HardDrive,
  KeyRound,
  Layers,
  MessageSquare,
  ScrollText,
  SlidersHorizontal,
  Stethoscope,
  Users,
} from "lucide-react";
import type { ComponentType, ReactNode } from "react";
import { TABS } from "@/features/sandbox/tabs";

export interface PageEntry {
  /** Below /ui/. */
  path: string;
  load: () => Promise<{ default: ComponentType }>;
  /** Its name in the rail and the palette; without one it is reached from other pages alone. */
  title?: string;
  icon?: ReactNode;
  /** Only for admin keys, below the line. */
  admin?: boolean;
  /** Pages that show inside this one's <Outlet/>; an empty path is the first of them. */
  children?: Omit<PageEntry, "children">[];
}

export const PAGES: PageEntry[] = [
  {
    path: "sandboxes",
    title: "Sandboxes",
    icon: <Box size={16} />,
    load: () => import("@/features/sandboxes/page"),
  },
  {
    path: "chat",
    title: "Chat",
    icon: <MessageSquare size={16} />,
    load: () => import("@/features/chat/page"),
    children: [
      { path: "", load: () => import("@/features/chat/new") },
      { path: ":thread", load: () => import("@/features/chat/thread") },
    ],
  },
  {
    path: "images",
    title: "Images",
    icon: <Layers size={16} />,
    load: () => import("@/features/images/page"),
    children: [
      { path: "", load: () => import("@/features/images/list") },
      { path: "catalogue", load: () => import("@/features/images/catalogue") },
      { path: "builds", load: () => import("@/features/images/builds") },
    ],
  },
  {
    path: "volumes",
    title: "Volumes",
    icon: <HardDrive size={16} />,
    load: () => import("@/features/volumes/page"),
  },
  {
    path: "skills",
    title: "Skills",
    icon: <BookMarked size={16} />,
    load: () => import("@/features/skills/page"),
  },
  {
    path: "audit",
    title: "Audit",
    icon: <ScrollText size={16} />,
    load: () => import("@/features/audit/page"),
  },
  {
    path: "events",
    title: "Events",
    icon: <Activity size={16} />,
    load: () => import("@/features/events/page"),
  },
  {
    path: "keys",
    title: "Keys",
    icon: <KeyRound size={16} />,
    load: () => import("@/features/keys/page"),
  },
  {
    path: "sandboxes/:id",
    load: () => import("@/features/sandbox/page"),
    children: TABS,
  },
  {
    path: "pool",
    title: "Pool",
    admin: true,
    icon: <Flame size={16} />,
    load: () => import("@/features/pool/page"),
  },
  {
    path: "owners",
    title: "Owners",
    admin: true,
    icon: <Users size={16} />,
    load: () => import("@/features/owners/page"),
  },
  {
    path: "settings",
    title: "Settings",
    admin: true,
    icon: <SlidersHorizontal size={16} />,
    load: () => import("@/features/settings/page"),
  },
  {
    path: "doctor",
    title: "Doctor",
    admin: true,
    icon: <Stethoscope size={16} />,
    load: () => import("@/features/doctor/page"),
  },
];
