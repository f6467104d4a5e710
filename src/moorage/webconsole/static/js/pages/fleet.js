import { h } from "../dom.js";
import { badge, link, plural, rows, section, stat, table, trouble, when } from "../parts.js";

export const title = () => "Fleet";
export function topic({ query }) {
  const words = ["trouble", "marker"].filter((name) => query.get(name)).map((name) => `${name}=${encodeURIComponent(query.get(name))}`);
  return `fleet${words.length ? "?" + words.join("&") : ""}`;
}
const SHOWN = 10;

export function render(data, { query, session }) {
  const hosts = data.hosts.fleet, { counts } = data.hosts;
  const gates = data.gates || {};
  return [
    h("div", { class: "stats" },
      stat("hosts", counts.hosts, "plain", "/fleet"), stat("up", counts.up, "ok", "/fleet"),
      stat("down", counts.hosts - counts.up, counts.hosts > counts.up ? "bad" : "plain", "/fleet?trouble=1"),
      stat("disabled", counts.disabled, counts.disabled ? "wait" : "plain", "/fleet?trouble=1"),
      stat("forced down", counts.forced_down, counts.forced_down ? "bad" : "plain", "/fleet?trouble=1")),
    rows(data.hosts.cells_out).map((cell) => h("p", { class: "note bad" }, `Cell ${cell} does not answer: its hosts are missing here.`)),
    rows(gates.warnings).map((each) => h("p", { class: "note wait" }, each)),
    h("div", { class: "columns" },
      section("Cells", trouble(data.cells, "Cells"), table("Cells", ["Cell", "State", "Hosts", "Servers"], rows(data.cells).map((each) =>
        [each.name, each.name, [badge(each.answers ? (each.disabled ? "disabled" : "up") : "out"), ` ${each.why || each.disabled_reason || ""}`], each.hosts, each.servers]))),
      section("Levels and gates", trouble(gates, "Gates"), gates.levels ? [
        h("p", {}, Object.entries(gates.levels).map(([level, n]) => `${plural(n, "host")} of level ${level}`).join(", "), gates.pin ? `; pinned to ${gates.pin}` : ""),
        h("p", { class: "quiet" }, gates.releases.map((each) => `${each.count} × ${each.role} ${each.release || "before 0.2.0"}`).join(", ")),
        h("ul", { class: "gates" }, gates.gates.map((each) => h("li", {}, h("b", {}, each.name.replaceAll("_", " ")), " ", h("span", { class: `badge ${each.open ? "ok" : "wait"}` }, each.open ? "open" : "shut"), ` ${each.behaviour}`,
          each.reasons.map((reason) => h("small", {}, ` because ${reason}`)), each.hosts_blocking ? h("small", {}, ` ${plural(each.hosts_blocking, "host")} in the way: ${each.blocked_by.slice(0, SHOWN).map((one) => one.host).join(", ")}`) : null)))] : null)),
    waits(data),
    section(query.get("trouble") ? "Hosts that are down or disabled" : "Hosts",
      h("p", {}, query.get("trouble") ? link("/fleet", "All hosts") : link("/fleet?trouble=1", "Only those that are down or disabled")),
      table("Hosts", ["Host", "Cell", "Zone", "State", "Level", "Last beat", "Set by an administrator"], hosts.map((each) => [each.host, each.host, each.cell, each.zone,
        badge(each.forced_down ? "forced down" : each.up ? "up" : "down"), `${each.level}${each.release ? ` (${each.release})` : ""}`, when(each.seen_at), said(each)]), "No host is like that."),
      h("p", {}, query.get("marker") ? [link("/fleet", "To the first"), " "] : null,
        hosts.length >= 100 ? link(`/fleet?${new URLSearchParams({ ...Object.fromEntries(query), marker: hosts.at(-1).host })}`, "More") : null)),
  ];
}

function said(host) {
  const lines = [];
  if (host.forced_down) lines.push(h("div", {}, "forced down", host.forced_down_by ? [" by user ", h("code", {}, host.forced_down_by)] : "", host.forced_down_at ? [", ", when(host.forced_down_at)] : ""));
  if (host.disabled) lines.push(h("div", {}, `disabled: ${host.disabled_reason || "no reason was given"}`));
  return lines.length ? lines : "–";
}

function hostTroubles(each) {
  const guests = each.left_alone || each.set_aside.length;
  return [
    ...(each.refused_agent ? ["another agent spoke for it and was refused"] : []),
    ...(guests ? [`${plural(guests, "guest")} left alone or put aside`] : []),
    ...(each.not_wired || []).map((what) => `a port is not wired as it should be: ${what}`),
  ];
}

function waits(data) {
  const lines = [
    ...rows(data.out).map(({ circuit, process }) => `The ${circuit.neighbour} service is left alone by ${process}: ${circuit.why}`),
    ...rows(data.troubled).flatMap((each) => hostTroubles(each).map((what) => `Host ${each.host} in ${each.cell}: ${what}`)),
    ...rows(data.approvals).map((each) => `Host ${each.host} in ${each.cell || "no cell"} waits to be approved: moorage host approve ${each.host}`),
    ...rows(data.databases).filter((each) => each.missing).map((each) => `${plural(each.missing, "server")} missing in the database of ${each.cell}`),
  ];
  return lines.length ? section("What waits for a person", h("ul", {}, lines.map((each) => h("li", {}, each)))) : null;
}
