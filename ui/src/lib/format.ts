// How figures are written: sizes in binary units, durations in the unit that fits, times relative.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Two or three digits, without needless zeros. */
function digits(value: number): string {
  if (value >= 100 || Number.isInteger(value)) return value.toFixed(0);
  return value.toFixed(value >= 10 ? 1 : 2).replace(/\.?0+$/, "");
}

export function bytes(count: number): string {
  let value = count;
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${digits(value)} ${UNITS[unit]}`;
}

export function mebibytes(count: number): string {
  return bytes(count * 1024 * 1024);
}

export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${digits(Math.floor(seconds * 10) / 10)} s`;
  const minutes = seconds / 60;
  if (minutes < 60) return `${Math.floor(minutes)} min ${Math.floor(seconds % 60)} s`;
  const hours = minutes / 60;
  if (hours < 48) return `${Math.floor(hours)} h ${Math.floor(minutes % 60)} min`;
  return `${Math.floor(hours / 24)} d ${Math.floor(hours % 24)} h`;
}

/** "2 s", "6 min", "3 h", "12 d": how long ago. */
export function ago(then: number, now: number): string {
  const seconds = Math.max(0, Math.floor((now - then) / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

export function percent(share: number): string {
  return `${digits(Math.round(share * 1000) / 10)} %`;
}

export function count(value: number): string {
  return value.toLocaleString("en-US");
}
