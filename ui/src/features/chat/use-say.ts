// Saying something: files go first, because the agent is told their names, then the run begins.
import { useMutation } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { ask, type Message, type Thread } from "@/api/agent";
import type { Schemas } from "@/api/client";
import { randomId } from "@/lib/random-id";
import { upload } from "@/lib/upload";
import { firstLine, withFiles } from "./text";
import { useStart } from "./use-conversation";

export interface Said {
  text: string;
  files: File[];
}

interface Options {
  /** A conversation that is not there yet is made. */
  thread?: string;
  /** What was said before. */
  messages?: Message[];
  from?: string;
  /** The conversation that was just made. */
  onMade?: (thread: string) => void;
  /** It was said, also when the page that said it is no longer shown. */
  onSaid?: (thread: string) => void;
}

export function useSay({ thread, messages = [], from, onMade, onSaid }: Options) {
  const start = useStart();
  const [sent, setSent] = useState(0);
  const end = useRef<AbortController>(undefined);
  const say = useMutation({
    mutationFn: async ({ text, files }: Said) => {
      const id = thread ?? (await made(text, files));
      if (!thread) onMade?.(id);
      const names = await uploaded(id, files);
      const input = { type: "human" as const, id: randomId(), content: withFiles(text, names) };
      await start(id, { messages: [...messages, input], input, from });
      onSaid?.(id);
      return id;
    },
  });
  async function uploaded(id: string, files: File[]): Promise<string[]> {
    if (files.length === 0) return [];
    end.current = new AbortController();
    setSent(0);
    const body = new FormData();
    for (const file of files) body.append("files", file);
    const path = `/threads/${id}/files/upload`;
    const { signal } = end.current;
    const kept = await upload<Schemas["UploadItem"][]>(path, {
      method: "POST",
      body,
      onSent: setSent,
      signal,
    });
    return kept.map((item) => item.path);
  }
  return { say, sent, stop: () => end.current?.abort() };
}

async function made(text: string, files: File[]): Promise<string> {
  const title = firstLine(text) || firstLine(files[0]?.name ?? "");
  const { thread_id } = await ask<Thread>("POST", "/threads", { metadata: { title } });
  return thread_id;
}
