import { h } from "../dom.js";
import { badge, bar, isTrouble, link, plural, rows, section, stat, table, trouble, when } from "../parts.js";

export const title = () => "Overview";
export const topic = () => "overview";
const UNITS = { VCPU: ["vCPUs", ""], MEMORY_MB: ["Memory", "MiB"], DISK_GB: ["Disk", "GB"] };
const SHOWN = 8;

export function render(data, { session }) {
  const operations = rows(data.operations);
  const stuck = operations.filter((each) => each.status === "stuck"), waiting = operations.filter((each) => each.waiting && each.status !== "stuck");
  const total = session.admin ? rows(data.cells).reduce((sum, cell) => sum + cell.servers, 0) : data.limits?.totalInstancesUsed;
  const count = (part) => (isTrouble(part) ? "?" : part >= 100 ? "100+" : part);
  const errors = rows(data.errors);
  return [
    h("div", { class: "stats" },
      stat(session.admin ? "servers in the region" : "servers of the project", total ?? "?", "plain", "/servers"),
      stat("running", count(data.active), "ok", "/servers?status=ACTIVE"),
      stat("being built", count(data.building), data.building ? "wait" : "plain", "/servers?status=BUILD"),
      stat("waiting operations", waiting.length, waiting.length ? "wait" : "plain", "/operations?status=open"),
      stat("stuck", stuck.length, stuck.length ? "bad" : "plain", "/operations?status=stuck"),
      stat("servers in error", errors.length >= 20 ? "20+" : errors.length, errors.length ? "bad" : "plain", "/servers?status=ERROR")),
    h("div", { class: "columns" },
      section("What runs out first", session.admin ? fleet(data) : quota(data)),
      section("On its way", trouble(data.operations, "Operations"), sleepers(data.sleepers), under(operations))),
    session.admin ? section("What somebody should look at", notes(data)) : null,
    section("Servers in error", trouble(data.errors, "Servers"),
      table("Servers in error", ["Server", "Since", "Why"], errors.map((each) => [each.id, link(`/server/${each.id}`, each.name), when(each.updated), each.fault?.message || "–"]), "No server is in error.")),
  ];
}

function quota({ limits }) {
  if (!limits || isTrouble(limits)) return trouble(limits, "Quota");
  const lines = [["Servers", "totalInstancesUsed", "maxTotalInstances", ""], ["vCPUs", "totalCoresUsed", "maxTotalCores", ""], ["Memory", "totalRAMUsed", "maxTotalRAMSize", "MiB"]]
    .filter(([, , most]) => limits[most] >= 0).map(([name, used, most, unit]) => [limits[used] / Math.max(1, limits[most]), bar(`${name} of the project's quota`, limits[used], limits[most], unit)]);
  if (!lines.length) return h("p", { class: "quiet" }, "The project has no limits.");
  return lines.sort((one, other) => other[0] - one[0]).map(([, line]) => line);
}

function fleet({ totals }) {
  if (!totals || isTrouble(totals)) return trouble(totals, "Capacity");
  const lines = Object.entries(totals.resources).map(([name, { free, total }]) => [UNITS[name]?.[0] || name, total - free, total, UNITS[name]?.[1] || ""]);
  lines.push(...totals.segments.filter(({ total }) => total > 0).map((each) => [`Addresses of ${each.name}`, each.total - each.free, each.total, ""]));
  lines.sort((one, other) => other[1] / Math.max(1, other[2]) - one[1] / Math.max(1, one[2]));
  return [h("p", { class: "quiet" }, `${plural(totals.hosts.usable, "host")} of ${totals.hosts.all} take servers.`),
    lines.slice(0, SHOWN).map(([name, used, total, unit]) => bar(name, used, total, unit, "/fit-map"))];
}

function sleepers(told) {
  if (!told || isTrouble(told)) return trouble(told, "Servers that wait");
  if (!told.servers) return null;
  const causes = Object.entries(told.causes).map(([cause, { servers, oldest_since: since }]) => [`${servers} for ${cause.replaceAll("_", " ")}, the first since `, when(since)]);
  return h("p", { class: "sleepers" }, `${plural(told.servers, "server")} ${told.servers === 1 ? "waits" : "wait"} for a host: `, causes.flatMap((each, at) => (at ? ["; ", ...each] : each)));
}

function under(operations) {
  return table("Operations on their way", ["Operation", "Since", "State", "Waits for"], operations.slice(0, SHOWN).map((each) =>
    [each.id, link(`/operation/${each.id}`, each.name), when(each.created_at), badge(each.status), each.waiting || each.fault || "–"]), "Nothing is on its way.");
}

function hostTrouble(each) {
  if (each.refused_agent) return "another agent spoke for it";
  const guests = each.left_alone || each.set_aside.length;
  if (guests || !each.not_wired) return plural(guests, "guest") + " left alone or put aside";
  return `it does not wire ports as it should: ${each.not_wired[0]}`;
}

function notes(data) {
  const found = [
    ...rows(data.warnings).map((each) => [each, "/fleet"]),
    ...(Array.isArray(data.conductors) && !data.conductors.some((each) => each.state === "up") ? [["No conductor is up: what was accepted waits until one is started.", "/operations"]] : []),
    ...rows(data.cells).filter((each) => !each.answers).map((each) => [`Cell ${each.name} does not answer: ${each.why}`, "/fleet"]),
    ...rows(data.cells).filter((each) => each.disabled).map((each) => [`Cell ${each.name} takes no servers from elsewhere: ${each.disabled_reason || "no reason was given"}`, "/fleet"]),
    ...rows(data.out).map(({ circuit, process }) => [`The ${circuit.neighbour} service is left alone by ${process}: ${circuit.why}`, "/fleet"]),
    ...rows(data.troubled).map((each) => [`Host ${each.host} waits for a person: ${hostTrouble(each)}`, "/fleet"]),
    ...rows(data.audits).map((each) => [each, each.found - Object.values(each.repaired || {}).reduce((a, b) => a + b, 0)]).filter(([each, left]) => each.ended_at && left > 0)
      .map(([each, left]) => [`The last audit found ${plural(left, "thing")} that ${left === 1 ? "is" : "are"} not repaired`, `/audit/${each.id}`]),
  ];
  const troubles = ["cells", "totals", "out", "audits"].map((name) => trouble(data[name], name));
  if (!found.length && !troubles.some(Boolean)) return h("p", { class: "quiet" }, "Nothing.");
  return [troubles, h("ul", {}, found.map(([sentence, href]) => h("li", {}, link(href, sentence))))];
}
