// Pieces that several pages are made of.
import { h } from "./dom.js";

export const link = (href, ...what) => h("a", { href }, ...what);
export const isTrouble = (part) => Boolean(part && typeof part === "object" && !Array.isArray(part) && part.trouble);
export const rows = (part) => (Array.isArray(part) ? part : []);
export const plural = (n, one, many) => `${n.toLocaleString("en")} ${n === 1 ? one : many || one + "s"}`;

export function trouble(part, what) {
  return isTrouble(part) ? h("p", { class: "note wait" }, `${what}: ${part.trouble}`) : null;
}

const TONES = {
  ACTIVE: "ok", done: "ok", completed: "ok", confirmed: "ok", up: "ok", enabled: "ok", finished: "ok", moved: "ok",
  ERROR: "bad", stuck: "bad", failed: "bad", error: "bad", down: "bad", "forced down": "bad", out: "bad", left: "bad",
  BUILD: "wait", open: "wait", waiting: "wait", running: "wait", REBUILD: "wait", RESIZE: "wait", MIGRATING: "wait", VERIFY_RESIZE: "wait",
  moving: "wait", disabled: "wait", cleaning: "undo", undone: "undo", unwound: "undo", reverted: "undo", cancelled: "undo",
};
export const badge = (word) => h("span", { class: `badge ${TONES[word] || "plain"}` }, word || "–");

// Services write times in three forms: ISO with or without Z, and microseconds.
export function when(value) {
  if (value === null || value === undefined || value === "") return "–";
  const date = typeof value === "number" ? new Date(value / 1000) : new Date(/Z|[+-]\d\d:?\d\d$/.test(value) ? value : value + "Z");
  if (Number.isNaN(date.getTime())) return String(value);
  const text = date.toLocaleString("en-GB", { hour12: false, day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  return h("time", { datetime: date.toISOString(), title: date.toISOString() }, text);
}

export function lasted(from, to) {
  if (!from || !to) return "";
  const ms = (to - from) / 1000;
  return ms < 1000 ? `${Math.round(ms)} ms` : ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60000)} min`;
}

export function table(caption, heads, lines, empty = "Nothing.") {
  if (!lines.length) return h("p", { class: "quiet" }, empty);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h("table", {}, h("caption", { class: "hide" }, caption),
      h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, lines.map(([key, ...cells]) => h("tr", { "data-key": key },
        cells.map((cell, at) => h(at ? "td" : "th", { ...(at ? {} : { scope: "row" }), "data-label": heads[at] }, cell)))))));
}

// Of counts by word, those that are not nought.
export const counted = (counts) => Object.entries(counts || {}).filter(([, n]) => n > 0).map(([word, n]) => `${n} ${word}`).join(", ") || "none";

export const section = (title, ...what) => h("section", { class: "card" }, h("h2", {}, title), ...what);

export function stat(label, value, tone, href, more) {
  const inside = [h("span", { class: "n" }, String(value)), h("span", {}, label), more ? h("small", {}, more) : null];
  return href ? h("a", { class: `stat ${tone}`, href }, inside) : h("div", { class: `stat ${tone}` }, inside);
}

// How full something is: a word for those who do not see the bar.
export function bar(label, used, total, unit = "", href = "") {
  const part = total > 0 ? Math.min(1, Math.max(0, used / total)) : 0;
  const tone = part >= 0.9 ? "bad" : part >= 0.7 ? "wait" : "ok";
  const said = `${amount(total - used, unit)} free of ${amount(total, unit)}`;
  return h("div", { class: "fill" },
    h("span", { class: "name" }, href ? link(href, label) : label), h("span", { class: "quiet" }, said),
    h("span", { class: `track ${tone}`, role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100,
      "aria-valuenow": Math.round(part * 100), "aria-valuetext": `${Math.round(part * 100)} % used` },
      h("span", { vars: { width: `${(part * 100).toFixed(1)}%` } })),
    h("span", { class: "percent" }, `${Math.round(part * 100)} %`));
}

export function amount(n, unit) {
  if (unit === "MiB" && Math.abs(n) >= 1024) return `${round(n / 1024)} GiB`;
  if (unit === "kbit/s") return Math.abs(n) >= 1e6 ? `${round(n / 1e6)} Gbit/s` : `${round(n / 1000)} Mbit/s`;
  return `${n.toLocaleString("en")}${unit ? ` ${unit}` : ""}`;
}
const round = (n) => (Math.abs(n) >= 100 ? Math.round(n) : Math.round(n * 10) / 10).toLocaleString("en");

const STEP_WORDS = { begun: "under way", done: "done", failed: "failed", undone: "taken back", waiting: "waits", stuck: "stuck", cancelled: "cancelled" };

// Steps and undos in their order; the undo has its own colour and sign, and says so in words.
export function timeline(steps, running) {
  if (!steps || !steps.length) return h("p", { class: "quiet" }, running ? "No step has begun." : "No steps are remembered.");
  let begun = 0;
  return h("ol", { class: "steps" }, steps.map((each, at) => {
    const pending = each.state === "begun" && (!running || begun++ > 0);
    const tone = pending ? "next" : each.undo ? "undo" : each.state;
    const word = pending ? (each.undo ? "to be taken back" : running ? "under way or next" : "to come") : each.undo && each.state === "begun" ? "being taken back" : STEP_WORDS[each.state];
    const again = each.attempt > 1 && (at === 0 || steps[at - 1].attempt !== each.attempt);
    return h("li", { class: `${tone}${running && each.state === "begun" && !pending ? " now" : ""}` },
      again ? h("span", { class: "again" }, `attempt ${each.attempt}`) : null,
      h("span", { class: "step" }, `${each.undo ? "↩ " : ""}${each.step.replaceAll("_", " ")}`),
      h("span", { class: "word" }, word), each.message ? h("span", { class: "message" }, each.message) : null);
  }));
}

// A decision as a picture: all hosts that were looked at, by what became of them.
export function decision(ledger) {
  if (ledger.considered === undefined) return null;
  const causes = Object.entries(ledger.refused || {}).sort((one, other) => other[1] - one[1]);
  const all = Math.max(1, ledger.considered);
  const parts = [["would do", ledger.willing || 0, "ok"], ...causes.map(([cause, n], at) => [cause, n, `cause${at % 6}`])].filter(([, n]) => n > 0);
  const said = parts.map(([cause, n]) => `${n} ${cause}`).join(", ");
  return h("figure", { class: "decision" },
    h("figcaption", {}, `${plural(ledger.considered, "host")} looked at, ${ledger.willing || 0} would do`,
      ledger.decision ? h("span", { class: "quiet" }, ` · decision ${ledger.decision}`) : null),
    h("div", { class: "stack", role: "img", "aria-label": said },
      parts.map(([cause, n, tone]) => h("span", { class: tone, title: `${n} × ${cause}`, vars: { "flex-grow": String(n) } }))),
    h("ul", { class: "legend" }, parts.map(([cause, n, tone]) => h("li", {},
      h("span", { class: `dot ${tone}` }), h("b", {}, n.toLocaleString("en")), ` ${cause} `, h("span", { class: "quiet" }, `${Math.round((n / all) * 100)} %`)))));
}
