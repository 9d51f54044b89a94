import { Menu } from "@base-ui/react/menu";
import { BookOpen, LogOut, Monitor, Moon, Sun } from "lucide-react";
import { NavLink } from "react-router";
import { useSignedIn, useSignOut } from "@/api/session";
import { MenuItem, MenuPopup } from "@/components/menu";
import { notifyError } from "@/components/toast";
import { cx } from "@/lib/cx";
import { setTheme, type Theme, useTheme } from "@/lib/theme";
import { PAGES } from "./pages";

export function Mark() {
  return (
    <svg
      viewBox="0 0 24 24"
      className="size-5 text-accent"
      aria-hidden="true"
      fill="none"
      stroke="currentColor"
    >
      <circle cx="12" cy="12" r="9" strokeWidth="3" />
      <circle cx="12" cy="12" r="3" fill="currentColor" stroke="none" />
    </svg>
  );
}

const itemClass = "flex h-8 items-center gap-2 rounded px-2 text-muted hover:bg-raised hover:text-text";

export function Rail({ open, onClose }: { open: boolean; onClose: () => void }) {
  const session = useSignedIn();
  const listed = PAGES.filter((page) => page.title && (!page.admin || session.scope === "admin"));
  const links = (admin: boolean) =>
    listed
      .filter((page) => Boolean(page.admin) === admin)
      .map((page) => (
        <NavLink
          key={page.path}
          to={`/${page.path}`}
          onClick={onClose}
          className={({ isActive }) => cx(itemClass, isActive && "bg-raised font-medium text-text")}
        >
          {page.icon}
          {page.title}
        </NavLink>
      ));
  const admin = links(true);
  return (
    <>
      {open && (
        <button
          type="button"
          aria-label="Close the menu"
          onClick={onClose}
          className="fixed inset-0 z-20 bg-bg/70 md:hidden"
        />
      )}
      <nav
        aria-label="Pages"
        className={cx(
          "z-30 flex w-48 shrink-0 flex-col border-r bg-bg p-2",
          open ? "max-md:fixed max-md:inset-y-0 max-md:left-0" : "max-md:hidden",
        )}
      >
        <NavLink to="/" className="mb-2 flex h-8 items-center gap-2 px-2 text-base font-medium">
          <Mark />
          Atoll
        </NavLink>
        <div className="flex flex-1 flex-col gap-0.5 overflow-y-auto">
          {links(false)}
          {admin.length > 0 && <div className="mt-2 mb-1 border-t px-2 pt-2 text-xs text-muted">admin</div>}
          {admin}
          <a href="/docs" className={cx(itemClass, "mt-2")}>
            <BookOpen size={16} />
            API reference
          </a>
        </div>
        <ThemeChoice />
        <Account />
      </nav>
    </>
  );
}

const THEMES: { theme: Theme; label: string; icon: typeof Sun }[] = [
  { theme: "light", label: "Light", icon: Sun },
  { theme: "dark", label: "Dark", icon: Moon },
  { theme: "system", label: "As the system", icon: Monitor },
];

function ThemeChoice() {
  const theme = useTheme();
  return (
    <fieldset aria-label="Theme" className="flex gap-1 py-2">
      {THEMES.map(({ theme: each, label, icon: Icon }) => (
        <button
          key={each}
          type="button"
          aria-label={label}
          title={label}
          aria-pressed={theme === each}
          onClick={() => setTheme(each)}
          className={cx(
            "rounded p-1.5",
            theme === each ? "bg-raised text-text" : "text-muted hover:text-text",
          )}
        >
          <Icon size={14} />
        </button>
      ))}
    </fieldset>
  );
}

function Account() {
  const { owner, key, scope, access } = useSignedIn();
  const signOut = useSignOut();
  if (access === "open") {
    return <p className="border-t px-2 pt-2 text-xs text-muted">This server asks for no keys.</p>;
  }
  return (
    <Menu.Root>
      <Menu.Trigger className="flex flex-col rounded border-t px-2 py-2 text-left hover:bg-raised">
        <span className="max-w-full truncate font-medium">{owner}</span>
        <span className="max-w-full truncate text-xs text-muted">
          {key?.name} · {scope.replace("_", "-")}
        </span>
      </Menu.Trigger>
      <MenuPopup align="start">
        <MenuItem
          onClick={() => void signOut().catch((error) => notifyError("You are still signed in", error))}
        >
          <LogOut size={14} />
          Sign out
        </MenuItem>
      </MenuPopup>
    </Menu.Root>
  );
}
