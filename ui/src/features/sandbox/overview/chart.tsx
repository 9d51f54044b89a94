// One measure over time, with a line where each command began. All charts of a page share one cursor.
import { useEffect, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useShownTheme } from "@/lib/theme";

export interface Mark {
  /** Seconds since 1970. */
  at: number;
  label: string;
  bad: boolean;
}

interface Props {
  title: string;
  times: number[];
  values: (number | null)[];
  marks: Mark[];
  /** The limit: the top of the scale where the values come near it. */
  limit?: number;
  write: (value: number) => string;
  /** The scale goes in steps of this base: 2 for bytes. */
  base?: 2 | 10;
}

const HEIGHT = 120;
/** How near to a mark the cursor must be, in pixels. */
const NEAR = 6;

const clock = (at: number) =>
  new Date(at * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false });

const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function drawMarks(plot: uPlot, marks: Mark[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.setLineDash([3, 3]);
  ctx.lineWidth = devicePixelRatio;
  for (const mark of marks) {
    // An odd line is sharp between two pixels' edges.
    const x = Math.round(plot.valToPos(mark.at, "x", true)) + (ctx.lineWidth % 2) / 2;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = token(mark.bad ? "--danger" : "--muted");
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function options(
  { write, marks, base }: Props,
  width: number,
  onHover: (text: string) => void,
): uPlot.Options {
  const axis = {
    stroke: token("--muted"),
    grid: { stroke: token("--line"), width: 1 },
    ticks: { show: false },
  };
  const font = "11px ui-sans-serif, system-ui, sans-serif";
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { sync: { key: "usage" }, y: false, drag: { x: false, y: false } },
    scales: { y: { range: (_, __, most) => [0, Math.max(most * 1.1, Number.MIN_VALUE)] } },
    series: [
      {},
      { stroke: token("--accent"), width: 1.5, fill: `${token("--accent")}22`, points: { show: false } },
    ],
    axes: [
      { ...axis, font, size: 24, space: 70, values: (_, all) => all.map(clock) },
      {
        ...axis,
        font,
        size: 60,
        space: 30,
        ...(base === 2 && { incrs: Array.from({ length: 48 }, (_, power) => 2 ** power) }),
        values: (_, all) => all.map((value) => (base === 2 ? write(value) : String(value))),
      },
    ],
    hooks: {
      draw: [(plot) => drawMarks(plot, marks)],
      setCursor: [
        (plot) => {
          const { idx, left = -1 } = plot.cursor;
          const value = idx == null ? null : plot.data[1]?.[idx];
          if (idx == null || value == null) return onHover("");
          const when = new Date((plot.data[0][idx] ?? 0) * 1000).toLocaleTimeString();
          const near = marks.find((mark) => Math.abs(plot.valToPos(mark.at, "x") - left) <= NEAR);
          onHover([when, write(value), near?.label].filter(Boolean).join(" · "));
        },
      ],
    },
  };
}

export function Chart(props: Props) {
  const { title, times, values, limit, write } = props;
  const box = useRef<HTMLDivElement>(null);
  const [hover, setHover] = useState("");
  const theme = useShownTheme();
  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours of the canvas change with the theme
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const plot = new uPlot(options(props, element.clientWidth, setHover), [times, values], element);
    const watch = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      plot.destroy();
    };
  }, [times, values, props.marks, theme]);
  const last = values.findLast((value) => value !== null);
  return (
    <figure className="min-w-0 p-3">
      <figcaption className="mb-1 flex h-5 items-baseline justify-between gap-2">
        <span className="font-medium">{title}</span>
        <span className="truncate text-xs text-muted">
          {hover || (last != null && `${write(last)}${limit ? ` of ${write(limit)}` : ""}`)}
        </span>
      </figcaption>
      <div ref={box} className="h-[120px] overflow-hidden" />
    </figure>
  );
}
