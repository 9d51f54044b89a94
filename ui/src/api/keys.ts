// Every key that the signed-in user may see: all pages of the list, which pages and panels look through.
import { queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "./client";

const PAGE = 200;

export async function everyKey(signal: AbortSignal): Promise<Schemas["KeyItem"][]> {
  const all: Schemas["KeyItem"][] = [];
  for (let page = 1; ; page += 1) {
    const query = { page, page_size: PAGE };
    const list = await unwrap(api.GET("/api/v1/keys", { params: { query }, signal }));
    all.push(...list.items);
    if (list.items.length === 0 || page * PAGE >= list.total) return all;
  }
}

export const keys = () => queryOptions({ queryKey: ["keys"], queryFn: ({ signal }) => everyKey(signal) });
