import { h } from "../dom.js";
import { amount, badge, decision, isTrouble, lasted, link, rows, section, table, timeline, trouble, when } from "../parts.js";

export const title = (data) => data?.server?.name || "Server";
export const topic = ({ id }) => `server/${id}`;
const POWER = { 0: "not known", 1: "running", 3: "paused", 4: "off", 6: "crashed", 7: "suspended" };
const RUNNING = new Set(["open", "cleaning", "stuck"]);

export function render(data, ctx) {
  const { server } = data;
  return [
    h("div", { class: "facts" },
      fact("State", [badge(server.status), server.task ? ` ${server.task}` : ""]), fact("Power", POWER[server.power] || "–"),
      fact("Flavor", server.flavor_name || "–"), server.host ? fact("Host", server.host) : null, fact("Zone", server.zone || "–"),
      fact("Created", when(server.created)), fact("Id", h("code", {}, server.id))),
    server.fault && server.fault.message !== data.explain?.summary ? h("p", { class: "note bad" }, `${server.fault.message} (${server.fault.code})`) : null,
    actions(server, ctx),
    section("Why it is where it is", ...why(data)),
    section("Ports, and what serves them", trouble(data.ports, "Ports"), ports(data.ports, ctx)),
    section("What was done", ...operations(data, ctx)),
    ctx.session.admin ? section("Moves", trouble(data.moves, "Moves"), moves(data.moves, ctx)) : null,
  ];
}

const fact = (name, ...value) => h("div", {}, h("span", { class: "quiet" }, name), h("span", {}, ...value));

function actions(server, ctx) {
  const act = (action, done) => () => ctx.change({ change: "action", server: server.id, action }, done);
  const button = (name, click, tone = "") => h("button", { type: "button", class: tone, "data-key": name, onclick: click }, name);
  const remove = () => {
    const ask = document.getElementById("sure");
    if (!ask.open) { ask.showModal(); return; }
  };
  const choices = {
    ACTIVE: [button("Stop", act("os-stop", "It is being stopped.")), button("Reboot", act("reboot", "It is being rebooted."))],
    SHUTOFF: [button("Start", act("os-start", "It is being started."))],
    VERIFY_RESIZE: [button("Confirm the move", act("confirmResize", "It stays.")), button("Take the move back", act("revertResize", "It goes back."))],
  };
  const migrate = ctx.session.admin && ["ACTIVE", "SHUTOFF"].includes(server.status) ? button("Move to another host", act("migrate", "It is being moved.")) : null;
  const yes = async () => {
    document.getElementById("sure").close();
    if (await ctx.change({ change: "delete", server: server.id })) { ctx.go("/servers"); ctx.say(`${server.name} is being deleted.`, "ok"); }
  };
  return h("div", { class: "actions" }, ...(choices[server.status] || []), migrate, button("Delete", remove, "bad"),
    h("dialog", { id: "sure", "aria-label": "Delete the server" }, h("p", {}, `Delete ${server.name}? What is on its disk is gone with it.`),
      h("div", { class: "actions" }, button("Delete it", yes, "bad"), button("Keep it", () => document.getElementById("sure").close()))));
}

function why({ explain }) {
  if (!explain || isTrouble(explain)) return [trouble(explain, "explain")];
  const placed = rows(explain.operations).filter((each) => each.attempts.length || each.ended?.considered !== undefined);
  if (!placed.length) return [h("p", {}, explain.summary || "No decision is remembered.")];
  return [h("p", { class: explain.summary === placed.at(-1).fault ? "lead note bad" : "lead" }, explain.summary), ...placed.slice().reverse().map((each, at) =>
    h("details", { open: at === 0, "data-key": each.id }, h("summary", {}, `${each.name}, `, when(each.created_at)),
      h("ol", { class: "attempts" }, each.attempts.map((one) => h("li", {}, attempt(one)))),
      each.ended ? h("div", { class: "attempt" }, each.ended.message === explain.summary ? null : h("p", { class: "note bad" }, each.ended.message), decision(each.ended), refused(each.ended)) : null))];
}

function attempt(one) {
  const where = one.host ? ` on ${one.host} in ${one.cell}` : "";
  return h("div", { class: "attempt" },
    h("p", {}, h("b", {}, `Attempt ${one.attempt}${where}`), one.claims_lost ? ` after ${one.claims_lost} claims that others were faster with` : ""),
    decision(one), one.failed ? h("p", { class: "note bad" }, `Failed at ${one.failed.step.replaceAll("_", " ")}: ${one.failed.message}`) : null,
    rows(one.providers).length ? h("ul", {}, one.providers.map((each) => h("li", {}, given(each)))) : null, refused(one), one.failed ? refused(one.failed) : null);
}

function given(each) {
  const amounts = Object.entries(each.resources).map(([name, n]) => amount(n, name.includes("KILOBIT") ? "kbit/s" : name)).join(", ");
  return `${each.port ? `Port ${each.port}` : `Group ${each.group}`}: ${amounts || "its traits"} from ${each.name || each.provider}`;
}

function refused(ledger) {
  const hosts = rows(ledger.refused_hosts);
  if (!hosts.length) return null;
  const more = Object.values(ledger.refused || {}).reduce((a, b) => a + b, 0) - hosts.length;
  return h("details", {}, h("summary", {}, `Hosts that were refused (${hosts.length}${more > 0 ? ` of ${hosts.length + more}` : ""})`),
    table("Refused hosts", ["Host", "Why"], hosts.map((each) => [each.host, each.host, [each.reason, ...(each.also || [])].join("; ")])));
}

function ports(list, { session }) {
  const heads = ["Addresses", "State", "Network", "Segment", ...(session.admin ? ["Host", "Served by"] : []), "MAC"];
  return table("Ports", heads, rows(list).map((each) => [each.id, each.addresses.join(", ") || "–", badge(each.status), each.network,
    each.segments.map((one) => (one.wire && one.wire !== one.name ? `${one.name} (${one.wire})` : one.name)).join(", ") || "the whole network",
    ...(session.admin ? [each.host || "–", device(each)] : []), h("code", {}, each.mac_address)]), "It has no ports.");
}

function device(port) {
  const chosen = port.allocation && typeof port.allocation === "object" ? Object.values(port.allocation).join(", ") : port.allocation;
  return [port.vif, port.bridge, port.vnic !== "normal" ? port.vnic : null, chosen ? `device ${chosen}` : null].filter(Boolean).join(", ") || "–";
}

function operations({ explain }, ctx) {
  if (!explain || isTrouble(explain)) return [];
  const list = rows(explain.operations).slice().reverse();
  if (!list.length) return [h("p", { class: "quiet" }, "Nothing is remembered.")];
  return list.map((each, at) => h("details", { class: "operation", open: at === 0 || RUNNING.has(each.status), "data-key": each.id },
    h("summary", {}, h("b", {}, each.name), " ", badge(each.status), " ", when(each.created_at), h("span", { class: "quiet" }, ` ${lasted(each.created_at, each.ended_at)}`)),
    each.waiting ? h("p", { class: "note wait" }, `Waits: ${each.waiting}`) : null,
    each.fault && !each.steps.some((one) => one.message === each.fault) ? h("p", { class: "note bad" }, each.fault) : null,
    timeline(each.steps, RUNNING.has(each.status)), h("p", {}, link(`/operation/${each.id}`, "This operation alone"))));
}

function moves(list, ctx) {
  return table("Moves", ["Move", "State", "From", "To", "Step", ""], rows(list).map((each) => [each.id, each.type, badge(each.status),
    `${each.source.host || "–"}`, `${each.destination.host || "–"}`, each.operation ? [each.operation.step || "–", each.waiting ? ` (${each.waiting})` : ""] : "–",
    each.may_be_cancelled ? h("button", { type: "button", onclick: () => ctx.change({ change: "cancel-move", server: ctx.id, move: each.id }, "The move is taken back.") }, "Take back") : ""]), "It was never moved.");
}
