import { Menu } from "@base-ui/react/menu";
import { useQuery } from "@tanstack/react-query";
import { Plus } from "lucide-react";
import { images } from "@/api/queries";
import { useSignedIn } from "@/api/session";
import { buttonClass } from "@/components/button";
import { CopyAs } from "@/components/copy-as";
import { ErrorNote } from "@/components/error-note";
import { Mark } from "@/components/mark";
import { MenuItem, MenuPopup } from "@/components/menu";
import { Loading, useTitle } from "@/components/page";
import { WithPanel } from "@/components/side-panel";
import { type Column, Table } from "@/components/table";
import { Bytes, Time } from "@/components/time";
import { curl } from "@/lib/shell";
import { useAddress } from "@/lib/use-address";
import { ImageDetails } from "./details";
import { BuildForm } from "./new-build";
import { ImportForm } from "./new-import";
import { PullForm } from "./new-pull";
import { fullName, type Image } from "./queries";

const COLUMNS: Column<Image>[] = [
  {
    key: "name",
    title: "Image",
    width: "minmax(8rem, 1fr)",
    cell: (image) => <span className="font-mono text-xs">{fullName(image)}</span>,
  },
  { key: "origin", title: "Made by", width: "6rem", cell: (image) => ORIGINS[image.origin] },
  {
    key: "state",
    title: "State",
    width: "8rem",
    wide: true,
    cell: (image) =>
      image.status === "deleting" ? (
        <Mark tone="off">being removed</Mark>
      ) : image.active ? (
        <Mark tone="works">{image.approved ? "approved" : "usable"}</Mark>
      ) : (
        <Mark tone="waits" title="Ordinary keys may not use it">
          admins only
        </Mark>
      ),
  },
  {
    key: "size",
    title: "Size",
    width: "6rem",
    align: "right",
    wide: true,
    cell: (image) => (image.size_bytes ? <Bytes count={image.size_bytes} /> : "–"),
  },
  {
    key: "used",
    title: "Last used",
    width: "6rem",
    align: "right",
    wide: true,
    cell: (image) => (image.last_used_at ? <Time at={image.last_used_at} /> : "–"),
  },
  {
    key: "made",
    title: "Made",
    width: "5rem",
    align: "right",
    cell: (image) => (image.created_at ? <Time at={image.created_at} /> : "–"),
  },
];

const ORIGINS: Record<Image["origin"], string> = {
  host: "this machine",
  import: "an import",
  pull: "a pull",
  template: "a build",
};

const FORMS = { dockerfile: BuildForm, pull: PullForm, import: ImportForm } as const;

export default function ImageList() {
  useTitle("Images");
  const { scope } = useSignedIn();
  const [at, go] = useAddress();
  const list = useQuery(images());
  const items = list.data?.items ?? [];
  const close = () => go({ image: "", add: "" });
  const Form = FORMS[at("add") as keyof typeof FORMS];
  const panel = Form ? (
    <Form onClose={close} />
  ) : at("image") ? (
    <ImageDetails key={at("image")} image={at("image")} onClose={close} />
  ) : undefined;
  return (
    <WithPanel panel={panel}>
      <div className="flex items-center justify-end gap-2 border-b px-4 py-1.5">
        <CopyAs cli="atoll image ls" curl={curl("GET", "/api/v1/sandbox-images")} />
        {scope === "admin" && (
          <Menu.Root>
            <Menu.Trigger className={buttonClass("primary", true)}>
              <Plus size={14} /> Add an image
            </Menu.Trigger>
            <MenuPopup>
              <MenuItem onClick={() => go({ add: "dockerfile", image: "" }, true)}>
                Build from a Dockerfile
              </MenuItem>
              <MenuItem onClick={() => go({ add: "pull", image: "" }, true)}>Pull from a registry</MenuItem>
              <MenuItem onClick={() => go({ add: "import", image: "" }, true)}>Import an archive</MenuItem>
            </MenuPopup>
          </Menu.Root>
        )}
      </div>
      {list.error && (
        <ErrorNote what="The images cannot be listed" error={list.error} retry={() => void list.refetch()} />
      )}
      {list.isPending && <Loading />}
      {list.data && (
        <Table
          label="Images"
          columns={COLUMNS}
          count={items.length}
          row={(index) => items[index]}
          rowKey={(image) => image.id}
          isSelected={(image) => image.id === at("image")}
          onOpen={(image) => go({ image: image.id, add: "" }, true)}
        />
      )}
    </WithPanel>
  );
}
