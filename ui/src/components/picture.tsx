import { useEffect, useState } from "react";

/** A picture from inside a sandbox. As an <img> of a blob not even SVG can run a script. */
export function Picture({ data, type, name }: { data: BlobPart; type: string; name: string }) {
  const [url, setUrl] = useState<string>();
  const [broken, setBroken] = useState(false);
  useEffect(() => {
    const made = URL.createObjectURL(new Blob([data], { type }));
    setUrl(made);
    setBroken(false);
    return () => URL.revokeObjectURL(made);
  }, [data, type]);
  if (broken) return <p className="p-3 text-muted">This is not a picture that a browser can show.</p>;
  return (
    url && (
      <img
        src={url}
        alt={name}
        onError={() => setBroken(true)}
        className="max-h-full max-w-full object-contain"
      />
    )
  );
}
