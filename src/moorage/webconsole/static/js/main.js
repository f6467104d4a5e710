// The page's frame: who is logged in, where one is, and the one topic that is followed.
import { h, morph } from "./dom.js";
import { Stream, ask, change, over, state, topicOnce } from "./live.js";

const PAGES = [
  ["", "Overview", "overview", "o"], ["servers", "Servers", "servers", "s"], ["operations", "Operations", "operations", "p"],
  ["fit-map", "Fit map", "fitmap", "f", true], ["fleet", "Fleet", "fleet", "l", true], ["moves", "Moves", "moves", "m", true],
  ["what-if", "What if", "whatif", "w"], ["audits", "Audit", "audits", "a", true],
];
const OF_ONE = { server: ["server", "servers"], operation: ["operation", "operations"], audit: ["audit", "audits"] };
const $ = (id) => document.getElementById(id);
let stream = null, shown = null, said = "", at = 0;

function say(sentence, tone = "wait") {
  if (sentence === said) return;
  said = sentence;
  $("say").className = sentence ? `note ${tone}` : "";
  $("say").textContent = sentence;
}

export function go(path, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", path);
  show(true);
}

function place() {
  const [name, id] = location.pathname.split("/").slice(1).map(decodeURIComponent);
  const one = id ? OF_ONE[name] : null;
  const page = PAGES.find(([path]) => path === (one ? one[1] : name)) || PAGES[0];
  return { module: one ? one[0] : page[2], nav: page[0], id: id || "", query: new URLSearchParams(location.search) };
}

async function show(moved = false) {
  const turn = ++at, here = place();
  stream?.close();
  stream = null;
  nav(here.nav);
  const main = $("main");
  main.setAttribute("aria-busy", "true");
  const page = await import(`/static/js/pages/${here.module}.js`);
  if (turn !== at) return;
  const context = { ...here, session: state.session, go, say, change: act, again: () => draw(context), topicOnce };
  const draw = (ctx) => {
    if (turn !== at) return;
    const title = page.title(ctx.data, ctx);
    document.title = `${title} – Moorage`;
    morph(main, [h("h1", { tabindex: -1 }, title), ...page.render(ctx.data, ctx).flat(9).filter(Boolean)]);
    main.setAttribute("aria-busy", "false");
    if (!performance.getEntriesByName("shown").length) performance.mark("shown");
  };
  if (shown !== page) { main.replaceChildren(h("h1", { tabindex: -1 }, page.title(null, context)), h("p", { class: "quiet" }, "Asking the cloud …")); shown = page; }
  if (moved) main.querySelector("h1").focus();
  say("");
  const take = (data) => { context.data = data; draw(context); };
  const topic = page.topic(context);
  stream = new Stream(topic, take, (sentence, status) => {
    say(sentence, "bad");
    if (sentence && !context.data) morph(main, [h("h1", {}, page.title(null, context)), h("p", { class: "note bad" }, sentence),
      h("p", {}, status === 404 ? h("a", { href: `/${here.nav}` }, "Back to the list") : "The page fills by itself when the service answers.")]);
    main.setAttribute("aria-busy", "false");
  });
}

// A change a person asked for: one sentence says what became of it.
async function act(what, done) {
  try {
    const told = await change(what);
    if (done) say(done, "ok");
    return told;
  } catch (failure) {
    say(failure.message, "bad");
    return null;
  }
}

function nav(current) {
  const links = PAGES.filter(([, , , , admin]) => !admin || state.session.admin)
    .map(([path, name, , key]) => h("a", { href: `/${path}`, "aria-current": path === current ? "page" : null, title: `g ${key}` }, name));
  morph($("nav"), links);
  $("nav").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function theme(next) {
  const wanted = next ?? localStorage.getItem("theme") ?? "";
  if (wanted) { document.documentElement.dataset.theme = wanted; localStorage.setItem("theme", wanted); }
  else { delete document.documentElement.dataset.theme; localStorage.removeItem("theme"); }
}

function who() {
  const { user, project_id, projects } = state.session;
  const choose = async (event) => {
    try { await ask("/api/project", { project_id: event.target.value }); location.assign("/"); } catch (failure) { say(failure.message, "bad"); who(); }
  };
  $("who").replaceChildren(
    h("label", {}, h("span", { class: "hide" }, "Project"),
      h("select", { onchange: choose }, projects.map((each) => h("option", { value: each.id, selected: each.id === project_id }, each.name)))),
    h("details", { class: "menu" }, h("summary", {}, user),
      h("div", {},
        h("label", {}, "Colours", h("select", { onchange: (event) => theme(event.target.value) },
          [["", "as the system"], ["light", "light"], ["dark", "dark"]].map(([value, name]) => h("option", { value, selected: (localStorage.getItem("theme") ?? "") === value }, name)))),
        h("button", { type: "button", onclick: async () => { await ask("/api/logout", {}).catch(() => null); location.replace("/login"); } }, "Log out"),
        h("p", { class: "quiet" }, "Keys: g and a letter goes to a page (o s p f l m w a); / goes to the filter."))));
}

addEventListener("click", (event) => {
  const a = event.target.closest?.("a");
  if (!a || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || a.target || a.origin !== location.origin || a.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  go(a.pathname + a.search);
});
addEventListener("popstate", () => show(true));
let before = "";
addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.metaKey || event.ctrlKey || event.altKey) return;
  const page = before === "g" && PAGES.find(([, , , key, admin]) => key === event.key && (!admin || state.session.admin));
  before = event.key;
  if (page) go(`/${page[0]}`);
  else if (event.key === "/") { const filter = document.querySelector("main input[type=search]"); if (filter) { event.preventDefault(); filter.focus(); } }
});

theme();
try {
  import(`/static/js/pages/${place().module}.js`);
  state.session = await ask("/api/session");
  state.session.projects = [{ id: state.session.project_id, name: state.session.project }];
  who();
  await show();
  Object.assign(state.session, await ask("/api/projects"));
  who();
} catch (failure) { if (failure.status === 401) over(); else say(failure.message, "bad"); }
