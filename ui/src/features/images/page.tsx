// Images: what there is, what can be built with one click, and how builds go.
import { NavLink, Outlet } from "react-router";
import { PageHead } from "@/components/page";
import { cx } from "@/lib/cx";
import { useImageEvents } from "./queries";

const TABS: [path: string, title: string][] = [
  ["", "Images"],
  ["catalogue", "Catalogue"],
  ["builds", "Builds"],
];

export default function Images() {
  useImageEvents();
  return (
    <>
      <PageHead title="Images" />
      <nav aria-label="Parts of this page" className="flex shrink-0 overflow-x-auto border-b px-2">
        {TABS.map(([path, title]) => (
          <NavLink
            key={path}
            to={path ? `/images/${path}` : "/images"}
            end
            className={({ isActive }) =>
              cx(
                "-mb-px shrink-0 border-b-2 px-2 py-1.5",
                isActive ? "border-accent font-medium" : "border-transparent text-muted hover:text-text",
              )
            }
          >
            {title}
          </NavLink>
        ))}
      </nav>
      <Outlet />
    </>
  );
}
