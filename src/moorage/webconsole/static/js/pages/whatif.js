import { h } from "../dom.js";
import { decision, plural, rows, section, table, trouble } from "../parts.js";
import { fields, read } from "./servers.js";

export const title = () => "What if";
export const topic = () => "choices";
const asked = { told: null, busy: false };

export function render(data, ctx) {
  return [
    h("p", { class: "quiet" }, "Asks the scheduler where servers would go, and why not elsewhere. Nothing is begun."),
    h("form", { class: "card form", onsubmit: (event) => send(event, ctx) }, ["flavors", "images", "networks"].map((name) => trouble(data[name], name)), fields(data, false), h("button", { class: "main" }, asked.busy ? "Asking …" : "Ask")),
    asked.told ? answer(asked.told) : null,
  ];
}

async function send(event, ctx) {
  event.preventDefault();
  if (asked.busy) return;
  const what = read(event.currentTarget);
  asked.busy = true;
  ctx.say("");
  ctx.again();
  asked.told = (await ctx.change({ change: "dry-run", ...what }))?.dry_run || null;
  asked.busy = false;
  ctx.again();
}

function answer({ servers }) {
  const would = servers.filter((each) => each.would_succeed).length;
  return section(would === servers.length ? `${plural(would, "server")} would be placed` : `${would} of ${plural(servers.length, "server")} would be placed`,
    servers.map((each, at) => h("details", { open: at === 0, "data-key": String(at) }, h("summary", {}, `${each.name || "server"} ${servers.length > 1 ? at + 1 : ""}: `, each.would_succeed ? "would be placed" : "would fail"),
      each.fault ? h("p", { class: "note bad" }, each.fault) : null, decision(each),
      rows(each.hosts).length ? table("Hosts, best first", ["Host", "Cell", "Segments", "Weighs"], each.hosts.map((host) => [host.host, host.host, host.cell, (host.segments || []).filter(Boolean).join(", ") || "–", Object.entries(host.weights).map(([name, points]) => `${name} ${Number(points.toFixed(3))}`).join(", ") || "–"])) : null,
      rows(each.refused_hosts).length ? table("Refused hosts", ["Host", "Why"], each.refused_hosts.slice(0, 100).map((miss) => [miss.host, miss.host, miss.reason])) : null)));
}
