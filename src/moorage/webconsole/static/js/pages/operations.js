import { h } from "../dom.js";
import { badge, link, rows, section, table, trouble, when } from "../parts.js";
import { advice } from "./operation.js";

export const title = () => "Operations";
const STATES = ["", "open", "cleaning", "stuck", "done", "undone"];
const WORDS = ["status", "server", "marker", "all"];

export function topic({ query }) {
  const words = WORDS.filter((name) => query.get(name)).map((name) => `${name}=${encodeURIComponent(query.get(name))}`);
  return `operations${words.length ? "?" + words.join("&") : ""}`;
}

export function render(data, { query, session, go }) {
  const filter = (event) => {
    event.preventDefault();
    const words = new URLSearchParams([...new FormData(event.currentTarget)].filter(([, value]) => value));
    go(`/operations${words.size ? "?" + words : ""}`);
  };
  const list = rows(data.operations), stuck = rows(data.stuck);
  const next = new URLSearchParams(query);
  if (list.length) next.set("marker", list.at(-1).id);
  return [
    h("form", { class: "filter", onsubmit: filter, role: "search" },
      h("label", {}, "Server (id)", h("input", { type: "search", name: "server", value: query.get("server") || "", maxlength: 64 })),
      h("label", {}, "State", h("select", { name: "status" }, STATES.map((each) => h("option", { value: each, selected: (query.get("status") || "") === each }, each || "any")))),
      session.admin ? h("label", {}, "Projects", h("select", { name: "all" }, [["1", "all"], ["0", "mine"]].map(([value, name]) => h("option", { value, selected: (query.get("all") || "1") === value }, name)))) : null,
      h("button", {}, "Show")),
    stuck.length || data.stuck.trouble ? section(`Stuck (${stuck.length})`, trouble(data.stuck, "Stuck operations"),
      stuck.map((each) => h("article", { class: "stuck", "data-key": each.id }, h("h3", {}, link(`/operation/${each.id}`, each.name), " of server ", link(`/server/${each.server}`, each.server)),
        h("p", { class: "note bad" }, each.fault || each.waiting || "It says nothing."), advice(each, session)))) : null,
    section("Newest first",
      table("Operations", ["Operation", "Server", "State", "Begun", "Ended", "Waits for, or fault"], list.map((each) => [each.id, link(`/operation/${each.id}`, each.name),
        each.server ? link(`/server/${each.server}`, h("code", {}, each.server.slice(0, 8))) : "–", badge(each.status), when(each.created_at), when(each.ended_at), each.waiting || each.fault || "–"]), "No operation is like that."),
      h("p", {}, query.get("marker") ? [link("/operations", "To the newest"), " "] : null, list.length >= 100 ? link(`/operations?${next}`, "Older ones") : null)),
  ];
}
