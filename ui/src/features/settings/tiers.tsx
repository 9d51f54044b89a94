import type { Schemas } from "@/api/client";
import { Panel } from "@/components/page";
import { duration, mebibytes } from "@/lib/format";

/** The tiers of keys, which only the configuration file changes. */
export function Tiers({ tiers }: { tiers: Record<string, Schemas["TierItem"]> }) {
  const sorted = Object.entries(tiers).sort(([, a], [, b]) => a.cpu_cores - b.cpu_cores);
  const cell = "px-3 py-1.5 text-right whitespace-nowrap";
  return (
    <Panel title="Tiers of keys">
      <p className="border-b px-3 py-2 text-xs text-muted">
        The most that requests with a key of the tier may ask for. The configuration file changes them, as
        <code className="font-mono"> [tiers.NAME]</code>.
      </p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard */}
      <div className="overflow-x-auto" role="region" aria-label="Tiers of keys" tabIndex={0}>
        <table className="w-full text-sm">
          <thead className="text-xs text-muted">
            <tr className="border-b">
              {[
                "Tier",
                "Cores",
                "Memory",
                "Disk",
                "Processes",
                "A command's time",
                "Network",
                "Profiles",
              ].map((title, index) => (
                <th
                  key={title}
                  scope="col"
                  className={
                    index === 0 || index > 5
                      ? "px-3 py-1.5 text-left font-normal"
                      : "px-3 py-1.5 text-right font-normal"
                  }
                >
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {sorted.map(([name, tier]) => (
              <tr key={name} className="border-b last:border-b-0">
                <th scope="row" className="px-3 py-1.5 text-left font-normal">
                  {name}
                </th>
                <td className={cell}>{tier.cpu_cores}</td>
                <td className={cell}>{mebibytes(tier.memory_mb)}</td>
                <td className={cell}>{mebibytes(tier.disk_mb)}</td>
                <td className={cell}>{tier.processes}</td>
                <td className={cell}>{duration(tier.timeout_seconds * 1000)}</td>
                <td className="px-3 py-1.5">{tier.network}</td>
                <td className="px-3 py-1.5 whitespace-nowrap">{tier.profiles.join(", ")}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}
