import { Field, Input } from "@/components/field";

export interface Login {
  username: string;
  password: string;
}

/** Who asks the registry; without, as the operator's file says. */
export function Credentials({ login, onLogin }: { login: Login; onLogin: (login: Login) => void }) {
  return (
    <div className="grid grid-cols-2 gap-3">
      <Field label="User" hint="As the operator's file says where it is empty.">
        {(props) => (
          <Input
            {...props}
            value={login.username}
            onChange={(event) => onLogin({ ...login, username: event.target.value })}
          />
        )}
      </Field>
      <Field label="Password" hint="Sent once, not kept.">
        {(props) => (
          <Input
            {...props}
            type="password"
            autoComplete="new-password"
            value={login.password}
            onChange={(event) => onLogin({ ...login, password: event.target.value })}
          />
        )}
      </Field>
    </div>
  );
}
