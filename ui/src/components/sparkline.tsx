/** A few values as a line; for a look, not for reading figures. */
export function Sparkline({ values, most, label }: { values: number[]; most: number; label: string }) {
  if (values.length < 2) return null;
  const [width, height] = [48, 16];
  const x = (index: number) => (index / (values.length - 1)) * width;
  const y = (value: number) => height - 1 - Math.min(1, value / (most || 1)) * (height - 2);
  const path = values
    .map((value, index) => `${index ? "L" : "M"}${x(index).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  return (
    <svg
      role="img"
      aria-label={label}
      viewBox={`0 0 ${width} ${height}`}
      className="h-4 w-12 shrink-0 text-accent"
    >
      <path d={path} fill="none" stroke="currentColor" strokeWidth="1.25" strokeLinejoin="round" />
    </svg>
  );
}
