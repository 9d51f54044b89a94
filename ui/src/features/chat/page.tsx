// The chat: conversations beside the one that is open. On narrow screens the list lies over it.
import { Outlet } from "react-router";
import { useAddress } from "@/lib/use-address";
import { Settings } from "./settings";
import { Threads } from "./threads";

export default function Chat() {
  const [at, go] = useAddress();
  return (
    <div className="flex min-h-0 flex-1">
      <Threads open={at("list") !== ""} onClose={() => go({ list: "" })} />
      <div className="flex min-w-0 flex-1 flex-col">
        <Outlet />
      </div>
      <Settings open={at("settings") !== ""} onClose={() => go({ settings: "" })} />
    </div>
  );
}
