import { h } from "../dom.js";
import { badge, link, section, timeline, when } from "../parts.js";

export const title = (data) => (data ? `Operation: ${data.operation.name}` : "Operation");
export const topic = ({ id }) => `operation/${id}`;
const RUNNING = new Set(["open", "cleaning", "stuck"]);

export function render({ operation: one }, { session }) {
  const fact = (name, value) => (value === null || value === undefined || value === "" ? null : h("div", {}, h("span", { class: "quiet" }, name), h("span", {}, value)));
  return [
    h("div", { class: "facts" }, fact("State", badge(one.status)), fact("Server", one.server ? link(`/server/${one.server}`, one.server) : ""),
      fact("Begun", when(one.created_at)), fact("Changed", when(one.updated_at)), one.ended_at ? fact("Ended", when(one.ended_at)) : null,
      fact("Told by", one.owner), fact("Adopted", one.epoch > 1 ? `${one.epoch - 1} times: whoever told it was gone` : ""),
      fact("Request", h("code", {}, one.request_id || "–"))),
    one.waiting ? h("p", { class: "note wait" }, `Waits: ${one.waiting}`) : null,
    one.fault ? h("p", { class: "note bad" }, one.fault) : null,
    one.status === "stuck" ? section("What may be done", advice(one, session)) : null,
    section("Steps", timeline(one.steps, RUNNING.has(one.status)), h("p", { class: "quiet" }, "↩ marks what is taken back.")),
  ];
}

// What docs/operating/recover.md says, in short. An operation that is stuck is still tried.
export function advice(one, session) {
  const lines = session.admin ? [
    "It is still tried, with pauses that grow. When what it waits for is back, it ends by itself: repair that first.",
    ["See which step it is at: ", h("code", {}, `moorage operation show ${one.id}`)],
    ["A host that will not come back: force it down (", h("code", {}, "openstack compute service set --down HOST nova-compute"), ") only when its guests are off for certain; then its part is taken as gone."],
    one.server ? ["The server may be deleted at any time: the delete takes over what is left. ", link(`/server/${one.server}`, "Go to the server")] : "",
    ["Afterwards look for what is left over: ", link("/audits", "audit"), "."],
  ] : ["It is still tried. You may delete the server at any time; else ask an administrator, with the id of this operation."];
  return h("ul", { class: "advice" }, lines.filter(Boolean).map((each) => h("li", {}, each)));
}
