// The rows of the list: pages of the server's answer for what is in view, in one sparse list. The first page is always
// asked for: it says how many there are, also while others are on their way.
import { useQueries, useQuery } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import type { Schemas } from "@/api/client";
import { type ListQuery, sandboxPage } from "@/api/queries";

export type Sandbox = Schemas["Sandbox"];

const PAGE = 100;
const pageOf = (index: number) => Math.floor(index / PAGE) + 1;

export interface Rows {
  count: number;
  row: (index: number) => Sandbox | undefined;
  onRange: (first: number, last: number) => void;
  /** Those of the rows in view that are there. */
  inView: Sandbox[];
  /** How many there are of each status, whatever status is filtered by. */
  counts: Record<string, number>;
  /** Those of the pages that are there. */
  loaded: Sandbox[];
  pending: boolean;
  error: unknown;
  retry: () => void;
}

export function useRows(query: ListQuery, everyone: boolean): Rows {
  const [[from, to], setRange] = useState<[number, number]>([0, 0]);
  const [first, last] = [pageOf(from), pageOf(to)];
  const page = (number: number) => sandboxPage({ ...query, page: number, page_size: PAGE }, everyone);
  const head = useQuery(page(1));
  const others = Array.from({ length: last - first + 1 }, (_, offset) => first + offset).filter((n) => n > 1);
  const answers = useQueries({ queries: others.map(page) });
  const row = (index: number) => {
    const number = pageOf(index);
    const data = number === 1 ? head.data : answers[others.indexOf(number)]?.data;
    return data?.items[index % PAGE];
  };
  const onRange = useCallback((from: number, to: number) => setRange([from, to]), []);
  const inView = Array.from({ length: to - from + 1 }, (_, offset) => row(from + offset)).filter(
    (each) => each !== undefined,
  );
  const all = [head, ...answers];
  return {
    count: head.data?.total ?? 0,
    row,
    onRange,
    inView,
    counts: head.data?.status_counts ?? {},
    loaded: all.flatMap((answer) => answer.data?.items ?? []),
    pending: head.isPending,
    error: head.data ? undefined : (head.error ?? undefined),
    retry: () => {
      for (const answer of all) void answer.refetch();
    },
  };
}
