// xterm on one terminal. Titles, links and clipboard requests from inside do nothing here.
import { FitAddon } from "@xterm/addon-fit";
import { type ITheme, Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef } from "react";
import { useShownTheme } from "@/lib/theme";
import { type Handlers, TerminalConnection } from "./connection";

const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const colours = (): ITheme => ({
  background: token("--surface"),
  foreground: token("--text"),
  cursor: token("--accent"),
  cursorAccent: token("--surface"),
  selectionBackground: `${token("--accent")}55`,
  red: token("--danger"),
  green: token("--ok"),
  yellow: token("--warn"),
  blue: token("--accent-text"),
  cyan: token("--accent"),
  white: token("--muted"),
  black: token("--text"),
  brightBlack: token("--muted"),
  brightRed: token("--danger"),
  brightGreen: token("--ok"),
  brightYellow: token("--warn"),
  brightBlue: token("--accent-text"),
  brightCyan: token("--accent"),
  brightWhite: token("--text"),
});

interface Props {
  sandbox: string;
  /** The terminal to attach to; without one another is opened. */
  exec?: string;
  handlers: Pick<Handlers, "onReady" | "onEnd" | "onError" | "onState">;
  /** Gets what ends the terminal, with all that runs in it. */
  onKill: (kill: () => void) => void;
}

export function Screen({ sandbox, exec, handlers, onKill }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const term = useRef<Terminal>(null);
  const latest = useRef({ handlers, onKill });
  latest.current = { handlers, onKill };
  const theme = useShownTheme();
  const first = useRef(exec);
  useEffect(() => {
    if (!box.current) return;
    const terminal = new Terminal({
      fontFamily: token("--font-mono") || "monospace",
      fontSize: 13,
      scrollback: 10_000,
      cursorBlink: false,
      screenReaderMode: true,
      theme: colours(),
      linkHandler: { activate: () => {} },
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(box.current);
    fit.fit();
    term.current = terminal;
    // Old output can hold questions to the terminal; their answers must not be typed into the shell a second time.
    let replaying = 0;
    const link = new TerminalConnection(
      sandbox,
      first.current,
      { rows: terminal.rows, cols: terminal.cols },
      {
        onReady: (id) => latest.current.handlers.onReady(id),
        onEnd: (ended) => latest.current.handlers.onEnd(ended),
        onError: (message) => latest.current.handlers.onError(message),
        onState: (state) => latest.current.handlers.onState(state),
        onOutput: (data, replayed) => {
          if (replayed) replaying += 1;
          terminal.write(data, () => {
            if (replayed) replaying -= 1;
          });
        },
      },
    );
    latest.current.onKill(() => link.kill());
    terminal.onData((text) => replaying === 0 && link.type(new TextEncoder().encode(text)));
    terminal.onBinary((text) => {
      if (replaying === 0) link.type(Uint8Array.from(text, (letter) => letter.charCodeAt(0)));
    });
    terminal.onResize((size) => link.resize({ rows: size.rows, cols: size.cols }));
    const watch = new ResizeObserver(() => fit.fit());
    watch.observe(box.current);
    terminal.focus();
    return () => {
      watch.disconnect();
      link.leave();
      terminal.dispose();
    };
  }, [sandbox]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the colours change with the theme
  useEffect(() => {
    if (term.current) term.current.options.theme = colours();
  }, [theme]);
  return <div ref={box} className="h-full min-h-0 overflow-hidden bg-surface p-2" />;
}
