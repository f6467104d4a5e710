import { h } from "../dom.js";
import { badge, link, rows, section, table, when } from "../parts.js";

export const title = () => "One audit";
export const topic = ({ id }) => `audit/${id}`;
const HIDDEN = new Set(["kind", "key"]);

export function render({ audit, kinds }) {
  const known = Object.fromEntries(rows(kinds).map((each) => [each.kind, each]));
  return [
    h("div", { class: "facts" }, [["State", badge(audit.status)], ["Asked", when(audit.asked_at)], ["Ended", when(audit.ended_at)], ["Found", String(audit.found)]].map(([name, value]) => h("div", {}, h("span", { class: "quiet" }, name), h("span", {}, value)))),
    audit.why ? h("p", { class: "note bad" }, audit.why) : null,
    section("Findings", Object.entries(audit.counts || {}).map(([kind, n]) => h("details", { "data-key": kind, open: true }, h("summary", {}, h("b", {}, String(n)), ` × ${known[kind]?.says || kind}`),
      known[kind]?.repairable ? h("p", { class: "quiet" }, `A repair: ${known[kind].repair}`) : null,
      table(kind, ["What", "Server"], audit.findings.filter((each) => each.kind === kind).map((each, at) => [`${kind}${at}`, words(each), each.server ? link(`/server/${each.server}`, each.server) : "–"]))), ),
      audit.found ? null : h("p", { class: "quiet" }, audit.ended_at ? "Nothing is left over or wrong." : "It is still looking.")),
    audit.repairs.length ? section("Repairs", table("Repairs", ["When", "What"], audit.repairs.map((each, at) => [String(at), when(each.at), words(each)]))) : null,
  ];
}

const words = (row) => Object.entries(row).filter(([name, value]) => !HIDDEN.has(name) && value !== "" && value !== null && typeof value !== "object").map(([name, value]) => `${name.replaceAll("_", " ")}: ${value}`).join("; ");
