import { Link, useRouteError } from "react-router";
import { Button } from "@/components/button";
import { ErrorNote } from "@/components/error-note";

export function NotFound() {
  return (
    <div className="p-8">
      <h1 className="text-base font-medium">There is no such page</h1>
      <p className="mt-2 text-muted">
        The address may be old. Go on with the{" "}
        <Link to="/sandboxes" className="text-accent-text underline">
          sandboxes
        </Link>
        .
      </p>
    </div>
  );
}

/** A page that failed while it was shown, or whose code could not be loaded. */
export function Broken() {
  const error = useRouteError();
  return (
    <div className="p-4">
      <ErrorNote what="This page broke" error={error}>
        <Button small className="mt-2" onClick={() => location.reload()}>
          Load it again
        </Button>
      </ErrorNote>
    </div>
  );
}
