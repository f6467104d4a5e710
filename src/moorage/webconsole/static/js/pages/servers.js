import { h } from "../dom.js";
import { badge, link, plural, rows, section, table, trouble, when } from "../parts.js";

export const title = () => "Servers";
const STATES = ["", "ACTIVE", "BUILD", "ERROR", "SHUTOFF", "VERIFY_RESIZE", "SHELVED_OFFLOADED"];
const WORDS = ["name", "status", "marker", "all"];

export function topic({ query }) {
  const words = WORDS.filter((name) => query.get(name)).map((name) => `${name}=${encodeURIComponent(query.get(name))}`);
  return `servers${words.length ? "?" + words.join("&") : ""}`;
}

const form = { choices: null, open: false };

export function render(data, ctx) {
  const { query, session, go } = ctx, servers = rows(data.servers);
  const filter = (event) => {
    event.preventDefault();
    const words = new URLSearchParams([...new FormData(event.currentTarget)].filter(([, value]) => value));
    go(`/servers${words.size ? "?" + words : ""}`);
  };
  const last = servers.at(-1)?.id;
  const next = new URLSearchParams(query);
  if (last) next.set("marker", last);
  return [
    h("form", { class: "filter", onsubmit: filter, role: "search" },
      h("label", {}, "Name", h("input", { type: "search", name: "name", value: query.get("name") || "", maxlength: 200 })),
      h("label", {}, "State", h("select", { name: "status" }, STATES.map((each) => h("option", { value: each, selected: (query.get("status") || "") === each }, each || "any")))),
      session.admin ? h("label", {}, "Projects", h("select", { name: "all" }, [["1", "all"], ["0", "mine"]].map(([value, name]) => h("option", { value, selected: (query.get("all") || "1") === value }, name)))) : null,
      h("button", {}, "Show"),
      h("button", { type: "button", class: "main", "aria-expanded": String(form.open), onclick: () => toggle(ctx) }, "New server")),
    form.open ? boot(ctx) : null,
    section(plural(servers.length, "server"),
      table("Servers", ["Name", "State", "Addresses", "Flavor", ...(session.admin ? ["Host"] : []), "Zone", "Created"], servers.map((each) => [
        each.id, link(`/server/${each.id}`, each.name), [badge(each.status), each.task ? h("small", {}, ` ${each.task}`) : null],
        Object.values(each.addresses || {}).flat().map((one) => one.addr).join(", ") || "–", each.flavor || "–",
        ...(session.admin ? [each.host || "–"] : []), each.zone || "–", when(each.created)]), "No server is like that."),
      h("p", {}, query.get("marker") ? [link("/servers", "To the newest"), " "] : null, data.more ? link(`/servers?${next}`, "Older ones") : null)),
  ];
}

async function toggle(ctx) {
  form.open = !form.open;
  if (form.open && !form.choices) {
    try { form.choices = await ctx.topicOnce("choices"); } catch (failure) { ctx.say(failure.message, "bad"); form.open = false; }
  }
  ctx.again();
  document.querySelector("#new-server input")?.focus();
}

export function fields(choices, many = true) {
  return [
    h("label", {}, "Name", h("input", { name: "name", required: true, maxlength: 255, autocomplete: "off", value: many ? "" : "what-if" })),
    h("label", {}, "Flavor", h("select", { name: "flavor" }, rows(choices.flavors).map((each) => h("option", { value: each.id }, `${each.name}: ${each.vcpus} vCPU, ${each.ram} MiB, ${each.disk} GB`)))),
    h("label", {}, "Image", h("select", { name: "image" }, rows(choices.images).map((each) => h("option", { value: each.id }, each.name)))),
    h("label", {}, "Network", h("select", { name: "networks" }, rows(choices.networks).map((each) => h("option", { value: each.id }, each.name)), h("option", { value: "" }, "none"))),
    h("label", {}, "Zone, if one is wanted", h("input", { name: "zone", maxlength: 255, autocomplete: "off" })),
    h("label", {}, "How many", h("input", { name: "count", type: "number", min: 1, max: 100, value: 1, required: true })),
  ];
}

export function read(element) {
  const words = Object.fromEntries(new FormData(element));
  return { ...words, networks: words.networks ? [words.networks] : [], count: Number(words.count) };
}

function boot(ctx) {
  const send = async (event) => {
    event.preventDefault();
    const asked = read(event.currentTarget);
    const told = await ctx.change({ change: "boot", ...asked }, `${asked.name} is being built.`);
    if (!told) return;
    form.open = false;
    if (told.server?.id && asked.count === 1) ctx.go(`/server/${told.server.id}`); else ctx.again();
  };
  const troubles = ["flavors", "images", "networks"].map((name) => trouble(form.choices[name], name));
  return h("form", { id: "new-server", class: "card form", "data-key": "boot", onsubmit: send }, h("h2", {}, "New server"), troubles, fields(form.choices), h("button", { class: "main" }, "Build it"));
}
