import { Menu } from "@base-ui/react/menu";
import type { ComponentProps, ReactNode } from "react";
import { cx } from "@/lib/cx";

export const popupClass = "rounded border border-line-strong bg-surface py-1 text-sm outline-none min-w-40";

/** The list of a menu, below its trigger. */
export function MenuPopup({ children, align = "end" }: { children: ReactNode; align?: "start" | "end" }) {
  return (
    <Menu.Portal>
      <Menu.Positioner sideOffset={4} align={align} className="z-50">
        <Menu.Popup className={popupClass}>{children}</Menu.Popup>
      </Menu.Positioner>
    </Menu.Portal>
  );
}

interface ItemProps extends ComponentProps<typeof Menu.Item> {
  danger?: boolean;
}

export function MenuItem({ danger = false, ...rest }: ItemProps) {
  return (
    <Menu.Item
      {...rest}
      className={cx(
        "flex h-8 cursor-default items-center gap-2 px-3 outline-none select-none data-[highlighted]:bg-raised",
        "data-[disabled]:text-muted",
        danger && "text-danger",
      )}
    />
  );
}
