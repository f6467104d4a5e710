import { h } from "../dom.js";
import { bar, counted, decision, link, plural, rows, section, table, trouble } from "../parts.js";
import { fields, read } from "./servers.js";

export const title = () => "What if";
export const topic = () => "choices";
const asked = { told: null, busy: "", capacity: null, failovers: null };
const KINDS = [["host", "hosts"], ["segment", "segments"], ["cell", "cells"], ["aggregate", "aggregates"]];

export function render(data, ctx) {
  return [
    ctx.session.admin ? [room(data, ctx), fails(ctx)] : null,
    h("h2", {}, "Where would these servers go?"),
    h("p", { class: "quiet" }, "Asks the scheduler where servers would go, and why not elsewhere. Nothing is begun."),
    h("form", { class: "card form", onsubmit: (event) => send(event, ctx) }, ["flavors", "images", "networks"].map((name) => trouble(data[name], name)), fields(data, false), h("button", { class: "main" }, asked.busy === "boot" ? "Asking …" : "Ask")),
    asked.told ? answer(asked.told) : null,
  ];
}

async function send(event, ctx) {
  event.preventDefault();
  if (asked.busy) return;
  const what = read(event.currentTarget);
  asked.busy = "boot";
  ctx.say("");
  ctx.again();
  asked.told = (await ctx.change({ change: "dry-run", ...what }))?.dry_run || null;
  asked.busy = "";
  ctx.again();
}

async function question(event, ctx, name, what) {
  event.preventDefault();
  if (asked.busy) return;
  asked.busy = name;
  ctx.say("");
  ctx.again();
  const told = await ctx.change(what);
  asked[name] = told ? told[name] : null;
  asked.busy = "";
  ctx.again();
}

const binding = (binds) => Object.entries(binds || {}).map(([name, n]) => `${name} (on ${plural(n, "host")})`).join(", ") || "nothing";
const listed = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

function room(data, ctx) {
  const send = (event) => {
    const words = Object.fromEntries(new FormData(event.currentTarget)), mbit = (name) => Math.round(Number(words[name] || 0) * 1000);
    const without = Object.fromEntries(["hosts", "segments", "cells"].map((name) => [name, listed(words[name])]).filter(([, names]) => names.length));
    return question(event, ctx, "capacity", { change: "capacity", flavor: words.flavor, networks: words.networks ? [words.networks] : [], zone: words.zone, egress_kbps: mbit("egress"), ingress_kbps: mbit("ingress"), without });
  };
  const [, flavor, , network, zone] = fields(data, false), text = (name, label, more = {}) => h("label", {}, label, h("input", { name, maxlength: 1000, autocomplete: "off", ...more }));
  return [h("h2", {}, "How many more fit?"),
    h("form", { class: "card form", "data-key": "capacity", onsubmit: send }, flavor, network, zone,
      text("egress", "Guaranteed egress, Mbit/s", { type: "number", min: 0, max: 1000000 }), text("ingress", "Guaranteed ingress, Mbit/s", { type: "number", min: 0, max: 1000000 }),
      text("hosts", "Without these hosts", { placeholder: "host1, host2" }), text("segments", "Without these segments"), text("cells", "Without these cells"),
      h("button", { class: "main" }, asked.busy === "capacity" ? "Counting …" : "Count")),
    asked.capacity ? fits(asked.capacity) : null];
}

function fits(found) {
  const area = (name, list) => (rows(list).length ? table(name, ["Name", "Fit", "Hosts", "Runs out first"], list.map((each) => [each.name, each.name, each.fits, each.hosts, binding(each.binds)])) : null);
  return section(`${plural(found.fits, "more server")} ${found.fits === 1 ? "fits" : "fit"}`,
    h("p", { class: "quiet" }, `${found.whole ? "" : "At least so many; it was not tried on. "}At most ${found.at_most}. Runs out first: ${binding(found.binds)}.`),
    Object.keys(found.refused).length ? h("p", {}, `Hosts out of the question: ${counted(found.refused)}.`) : null,
    rows(found.segments).map((each) => bar(`Addresses of ${each.segments.join(", ")}`, each.total - each.free, each.total)),
    area("Cells", found.cells), area("Zones", found.zones),
    table("Hosts with the most room", ["Host", "Cell", "Fit", "Runs out first"], rows(found.hosts).slice(0, 20).map((each) => [each.host, each.host, each.cell, each.fits, rows(each.binds).join(", ") || "–"]), "No host has room."));
}

function fails(ctx) {
  const send = (event) => {
    const words = Object.fromEntries(new FormData(event.currentTarget));
    return question(event, ctx, "failovers", { change: "failover", kind: words.kind, names: listed(words.names) });
  };
  return [h("h2", {}, "What if one of these fails?"),
    h("form", { class: "card form", "data-key": "failover", onsubmit: send },
      h("label", {}, "Kind", h("select", { name: "kind" }, KINDS.map(([value, name]) => h("option", { value }, name)))),
      h("label", {}, "Names, with commas between", h("input", { name: "names", required: true, maxlength: 4000, autocomplete: "off", placeholder: "host1, host2" })),
      h("button", { class: "main" }, asked.busy === "failovers" ? "Asking …" : "Ask")),
    asked.failovers ? section("Each by itself", asked.failovers.map((each) => h("details", { open: !each.survives, "data-key": each.name }, h("summary", {},
      h("span", { class: `badge ${each.survives ? "ok" : "bad"}` }, each.survives ? "survives" : "does not"), ` ${each.kind} ${each.name}: ${each.placed} of ${plural(each.servers, "server")} find another place`),
      table("Servers without another place", ["Server", "Host", "Why"], rows(each.unplaced).map((one) => [one.server, link(`/server/${one.server}`, one.server), one.host, one.why]), "All find one.")))) : null];
}

function answer({ servers }) {
  const would = servers.filter((each) => each.would_succeed).length;
  return section(would === servers.length ? `${plural(would, "server")} would be placed` : `${would} of ${plural(servers.length, "server")} would be placed`,
    servers.map((each, at) => h("details", { open: at === 0, "data-key": String(at) }, h("summary", {}, `${each.name || "server"}${servers.length > 1 ? ` ${at + 1}` : ""}: `, each.would_succeed ? "would be placed" : "would fail"),
      each.fault ? h("p", { class: "note bad" }, each.fault) : null, decision(each),
      rows(each.hosts).length ? table("Hosts, best first", ["Host", "Cell", "Segments", "Weighs"], each.hosts.map((host) => [host.host, host.host, host.cell, (host.segments || []).filter(Boolean).join(", ") || "–", Object.entries(host.weights).map(([name, points]) => `${name} ${Number(points.toFixed(3))}`).join(", ") || "–"])) : null,
      rows(each.refused_hosts).length ? table("Refused hosts", ["Host", "Why"], each.refused_hosts.slice(0, 100).map((miss) => [miss.host, miss.host, miss.reason])) : null)));
}
