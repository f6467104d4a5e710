import { h } from "../dom.js";
import { badge, link, rows, section, table, when } from "../parts.js";

export const title = () => "Audit";
export const topic = () => "audits";
const sum = (counts) => (typeof counts === "number" ? counts : Object.values(counts || {}).reduce((a, b) => a + b, 0));

export function render(data, ctx) {
  return [
    h("p", { class: "quiet" }, "An audit looks for what is left over or wrong anywhere in the cloud. It repairs nothing from here: moorage audit --repair does."),
    h("div", { class: "actions" }, h("button", { type: "button", class: "main", onclick: () => ctx.change({ change: "audit" }, "An audit was asked for; the conductor that leads begins it.") }, "Look now")),
    section("Audits, newest first", table("Audits", ["Asked", "State", "Found", "Repaired", "Ended"], rows(data.audits).map((each) =>
      [each.id, link(`/audit/${each.id}`, when(each.asked_at)), badge(each.status), [String(each.found), " ", Object.entries(each.counts || {}).map(([kind, n]) => h("small", {}, `${kind} ${n} `))], sum(each.repaired), when(each.ended_at)]), "No audit was made yet.")),
  ];
}
