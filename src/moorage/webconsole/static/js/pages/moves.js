import { h } from "../dom.js";
import { badge, counted, link, plural, rows, section, table, trouble, when } from "../parts.js";

export const title = () => "Moves and drains";
export const topic = () => "moves";
const plan = { drain: null, host: "" };

export function render(data, ctx) {
  const migrations = rows(data.migrations);
  return [
    h("form", { class: "filter", onsubmit: (event) => planned(event, ctx) },
      h("label", {}, "Empty a host", h("input", { name: "host", required: true, maxlength: 255, autocomplete: "off", placeholder: "name of the host" })), h("button", {}, "Show the plan")),
    plan.drain ? shown(ctx) : null,
    trouble(data.drains, "Drains"), trouble(data.cell_drains, "Drains of cells"), trouble(data.migrations, "Moves"),
    rows(data.open_drains).map((each) => section(`Host ${each.host} is being emptied`, progress(each.counts), cancel(each, "host", ctx), servers(each.servers))),
    rows(data.open_cell_drains).map((each) => section(`Cell ${each.cell} is being emptied`, progress(each.counts), cancel(each, "cell", ctx),
      table("Hosts of the cell", ["Host", "State", "Servers", "Why"], each.hosts.map((one) => [one.host, one.host, badge(one.progress), counted(one.counts), one.why || "–"])))),
    section("Moves of servers, newest first", table("Moves", ["Server", "Kind", "State", "From", "To", "Begun"], migrations.map((each) => [each.uuid || String(each.id),
      link(`/server/${each.instance_uuid}`, h("code", {}, each.instance_uuid.slice(0, 8))), each.migration_type, badge(each.status), each.source_compute || "–", each.dest_compute || "–", when(each.created_at)]), "Nothing was moved.")),
    section("Earlier drains", table("Drains", ["What", "State", "Servers", "Begun", "Ended", "Why"], [...rows(data.drains).map((each) => ["host", each]), ...rows(data.cell_drains).map((each) => ["cell", each])]
      .filter(([, each]) => each.ended_at).map(([kind, each]) => [each.id, `${kind} ${each[kind]}`, badge(each.status), counted(each.counts), when(each.began_at), when(each.ended_at), each.why || "–"]), "None.")),
  ];
}

async function planned(event, ctx) {
  event.preventDefault();
  plan.host = new FormData(event.currentTarget).get("host");
  const told = await ctx.change({ change: "drain", host: plan.host, dry_run: true });
  plan.drain = told?.drain || null;
  ctx.again();
}

function shown(ctx) {
  const { drain } = plan, stays = drain.servers.filter((each) => each.progress === "left");
  const close = () => { plan.drain = null; ctx.again(); };
  const begin = async () => { if (await ctx.change({ change: "drain", host: drain.host, dry_run: false }, `${drain.host} is being emptied.`)) close(); };
  return section(`Plan: ${plural(drain.servers.length, "server")} would leave ${drain.host}`,
    stays.length ? h("p", { class: "note wait" }, `${plural(stays.length, "server")} cannot be moved, so it is not begun.`) : null, servers(drain.servers),
    h("div", { class: "actions" }, stays.length ? null : h("button", { type: "button", class: "main", onclick: begin }, "Empty the host"), h("button", { type: "button", onclick: close }, "Close the plan")));
}

const servers = (list) => table("Servers", ["Server", "Way", "State", "To", "Why"], rows(list).map((each) => [each.server, link(`/server/${each.server}`, each.name || each.server), each.way, badge(each.progress), each.host || each.planned || "–", each.why || "–"]), "No server is on it.");

const DONE = new Set(["moved", "done", "gone"]);
function progress(counts) {
  const all = Object.values(counts).reduce((a, b) => a + b, 0), done = Object.entries(counts).filter(([word]) => DONE.has(word)).reduce((sum, [, n]) => sum + n, 0);
  return h("div", { class: "progress" }, h("progress", { max: Math.max(1, all), value: done, "aria-label": "Servers that are done" }), h("span", {}, ` ${done} of ${plural(all, "server")}: ${counted(counts)}`));
}

function cancel(drain, of, ctx) {
  if (drain.cancel) return h("p", { class: "quiet" }, "It is being cancelled: what is on its way comes to its end.");
  return h("p", {}, h("button", { type: "button", onclick: () => ctx.change({ change: "cancel-drain", drain: drain.id, of }, "It is being cancelled.") }, "Cancel"));
}
