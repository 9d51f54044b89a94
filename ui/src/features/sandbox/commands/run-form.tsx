import { Play } from "lucide-react";
import { useState } from "react";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Input } from "@/components/field";
import { curl, quote } from "@/lib/shell";
import { useStart } from "./start";

/** A line for the sandbox's shell. */
export function RunForm({ sandbox, onStarted }: { sandbox: string; onStarted: (exec: string) => void }) {
  const [command, setCommand] = useState("");
  const [folder, setFolder] = useState("");
  const start = useStart(sandbox, (exec) => {
    setCommand("");
    onStarted(exec);
  });
  const wanted = { command, ...(folder && { working_directory: folder }) };
  const workdir = folder ? ` --workdir ${quote(folder)}` : "";
  return (
    <form
      className="flex flex-wrap items-center gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        if (command.trim()) start.mutate(wanted);
      }}
    >
      <Input
        aria-label="Command"
        placeholder="A line for the shell: python3 train.py"
        value={command}
        onChange={(event) => setCommand(event.target.value)}
        className="min-w-48 flex-1 font-mono text-xs"
      />
      <Input
        aria-label="Folder"
        placeholder="/workspace"
        value={folder}
        onChange={(event) => setFolder(event.target.value)}
        className="max-w-40 font-mono text-xs"
      />
      <Button
        type="submit"
        kind="primary"
        icon={<Play size={14} />}
        disabled={!command.trim() || start.isPending}
      >
        Run
      </Button>
      <CopyAs
        cli={`atoll exec ${sandbox}${workdir} --shell ${quote(command)}`}
        curl={curl("POST", `/api/v1/sandboxes/${sandbox}/exec`, wanted)}
      />
    </form>
  );
}
