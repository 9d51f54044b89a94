// Skills: instructions and files for agents, uploaded once and installed in any sandbox.
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { api, type Schemas, unwrap } from "@/api/client";
import { useSignedIn } from "@/api/session";
import { Button } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { Empty } from "@/components/empty";
import { ErrorNote } from "@/components/error-note";
import { Input } from "@/components/field";
import { Loading, PageHead, useTitle } from "@/components/page";
import { Pager } from "@/components/pager";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Bytes, Time } from "@/components/time";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { AddSkill } from "./add";
import { SkillDetails } from "./details";

type Skill = Schemas["SkillItem"];
const SIZE = 100;

const columns = (admin: boolean): Column<Skill>[] => [
  {
    key: "name",
    title: "Name",
    width: "minmax(7rem, 12rem)",
    cell: (skill) => <span className="font-mono text-xs">{skill.name}</span>,
  },
  {
    key: "description",
    title: "Description",
    width: "minmax(8rem, 1fr)",
    wide: true,
    cell: (skill) => skill.description,
  },
  ...(admin
    ? [{ key: "owner", title: "Owner", width: "8rem", wide: true, cell: (s: Skill) => s.user_name }]
    : []),
  { key: "files", title: "Files", width: "4rem", align: "right", cell: (skill) => skill.files },
  {
    key: "size",
    title: "Package",
    width: "6rem",
    align: "right",
    wide: true,
    cell: (skill) => <Bytes count={skill.package_size_bytes} />,
  },
  {
    key: "changed",
    title: "Changed",
    width: "5rem",
    align: "right",
    cell: (skill) => <Time at={skill.updated_at} />,
  },
];

export default function Skills() {
  useTitle("Skills");
  const { scope } = useSignedIn();
  const [at, go] = useAddress();
  const page = Number(at("page") || 1);
  const search = at("q") || undefined;
  const list = useQuery({
    queryKey: ["skills", search, page],
    queryFn: ({ signal }) => {
      const query = { search, offset: (page - 1) * SIZE, limit: SIZE };
      return unwrap(api.GET("/api/v1/skills", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
  const items = list.data?.items ?? [];
  const close = () => go({ skill: "", add: "" });
  const panel = at("add") ? (
    <AddSkill onClose={close} onMade={(skill) => go({ add: "", skill: skill.id })} />
  ) : at("skill") ? (
    <SkillDetails key={at("skill")} id={at("skill")} onClose={close} />
  ) : undefined;
  return (
    <>
      <PageHead
        title="Skills"
        actions={
          <>
            <Input
              type="search"
              aria-label="Search the skills"
              placeholder="Search"
              className="max-w-48"
              value={at("q")}
              onChange={(event) => go({ q: event.target.value, page: "" })}
            />
            <CopyAs cli="atoll skill ls" curl={curl("GET", "/api/v1/skills")} />
            {scope !== "read_only" && (
              <Button
                kind="primary"
                icon={<Plus size={14} />}
                onClick={() => go({ add: "1", skill: "" }, true)}
              >
                Add
              </Button>
            )}
          </>
        }
      />
      <WithPanel panel={panel}>
        {list.error && <ErrorNote what="The skills cannot be listed" error={list.error} />}
        {list.isPending && <Loading />}
        {list.data && (
          <>
            <Table
              label="Skills"
              columns={columns(scope === "admin")}
              count={items.length}
              row={(index) => items[index]}
              rowKey={(skill) => skill.id}
              isSelected={(skill) => skill.id === at("skill")}
              onOpen={(skill) => go({ skill: skill.id, add: "" }, true)}
              empty={
                search ? (
                  <Empty title="No skill is called so" />
                ) : (
                  <Empty title="No skills yet" command="atoll skill add FOLDER">
                    A skill is a folder with a SKILL.md for agents. Some ship with the server: press Add.
                  </Empty>
                )
              }
            />
            <Pager
              page={page}
              size={SIZE}
              total={list.data.total}
              onPage={(next) => go({ page: String(next) })}
            />
          </>
        )}
      </WithPanel>
    </>
  );
}
