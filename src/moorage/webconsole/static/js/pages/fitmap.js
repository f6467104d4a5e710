// A heat map on one canvas of the size of the window: only the rows that are seen are drawn, so 10,000 hosts cost as much as 50.
import { h } from "../dom.js";
import { amount, bar, link, plural, section, table, trouble } from "../parts.js";

export const title = () => "Fit map";
export const topic = () => "fit-map";
const COLUMNS = { VCPU: ["vCPUs", ""], MEMORY_MB: ["memory", "MiB"], DISK_GB: ["disk", "GB"] };
const NAMES_PX = 128, HIGH_HEAD_PX = 96, LOW_HEAD_PX = 28, WIDE_PX = 84, NARROW_PX = 40, STATES = ["up", "disabled", "down"];
const view = { cell: "", sort: "name", size: 16, top: 0, at: null, model: null, source: null, head: LOW_HEAD_PX };

export function render(data, ctx) {
  const map = data.fit_map;
  if (view.source !== data) { view.source = data; view.model = model(map); }
  const { order, columns } = arranged();
  const choose = (name) => (event) => { view[name] = name === "size" ? Number(event.target.value) : event.target.value; view.top = 0; view.at = null; ctx.again(); };
  const option = (current) => ([value, name]) => h("option", { value, selected: String(current) === String(value) }, name);
  const room = Math.min(innerWidth - 48, 1272) - NAMES_PX, head = room / Math.max(1, columns.length) > WIDE_PX ? LOW_HEAD_PX : HIGH_HEAD_PX;
  const tall = head + order.length * view.size, wide = NAMES_PX + columns.length * NARROW_PX;
  return [
    trouble(data.segments, "Names of segments"),
    h("form", { class: "filter", onsubmit: (event) => event.preventDefault() },
      h("label", {}, "Cell", h("select", { onchange: choose("cell") }, [["", "all"], ...map.cells.map((each) => [each, each])].map(option(view.cell)))),
      h("label", {}, "Order", h("select", { onchange: choose("sort") }, [["name", "by name"], ...columns.map((each) => [each.id, `fullest first: ${each.name}`])].map(option(view.sort)))),
      h("label", {}, "Rows", h("select", { onchange: choose("size") }, [[16, "with names"], [6, "small"], [2, "smallest"]].map(option(view.size)))),
      h("p", { class: "key", "aria-hidden": "true" }, "free ", h("span", { class: "ramp" }), " full ", h("span", { class: "dot unwired" }), " not wired")),
    h("p", { id: "readout", class: "readout", role: "status" }, view.at ? read(order, columns) : `${plural(order.length, "host")} by ${plural(columns.length, "column")}. Point at a field, or focus the map and use the arrow keys.`),
    h("div", { class: "map", vars: { "--tall": `${tall + 16}px` }, tabindex: 0, role: "application", "aria-label": "Heat map of hosts and segments; arrow keys move, the line above says what is there", "aria-describedby": "readout",
      onscroll: (event) => { view.top = event.currentTarget.scrollTop; schedule(); }, onkeydown: (event) => move(event, order, columns),
      onpointermove: (event) => point(event, order, columns), onpointerleave: () => { view.at = null; schedule(); } },
      h("div", { class: "tall", vars: { height: `${tall}px`, "min-width": `${wide}px` } }, h("canvas", { "aria-hidden": "true", draw: (canvas) => { view.canvas = canvas; schedule(); } }))),
    section("The same in words", h("div", { class: "columns" }, columns.map((each) => bar(each.label, each.usedAll, each.totalAll, each.unit)))),
  ];
}

function bits(text) {
  const raw = atob(text), found = new Uint8Array(raw.length * 8);
  for (let at = 0; at < raw.length; at++) for (let bit = 0; bit < 8; bit++) found[at * 8 + bit] = (raw.charCodeAt(at) >> (7 - bit)) & 1;
  return found;
}

function model(map) {
  const n = map.hosts.name.length, columns = [];
  const add = (id, name, unit, free, total, label) => {
    if (!total.some((each) => each > 0)) return;
    const part = new Float32Array(n).fill(-1);
    let used = 0, all = 0;
    for (let at = 0; at < n; at++) if (total[at] > 0) { part[at] = 1 - free[at] / total[at]; used += total[at] - free[at]; all += total[at]; }
    columns.push({ id, name, unit, free, total, part, usedAll: used, totalAll: all, label: label || name });
  };
  for (const [id, { free, total }] of Object.entries(map.resources)) add(id, COLUMNS[id]?.[0] || id, COLUMNS[id]?.[1] || "", free, total);
  for (const [way, { free, total }] of Object.entries(map.bandwidth)) add(way, way, "kbit/s", free, total, `bandwidth, ${way}`);
  for (const each of map.segments) {
    const wired = bits(each.hosts), part = new Float32Array(n).fill(-1), full = each.total ? 1 - each.free / each.total : -1;
    for (let at = 0; at < n; at++) if (wired[at]) part[at] = full;
    columns.push({ id: each.id, name: each.name, segment: each, part, usedAll: each.total - each.free, totalAll: each.total, unit: "", label: `addresses of ${each.name}` });
  }
  return { map, columns, n };
}

const natural = new Intl.Collator("en", { numeric: true });
function arranged() {
  const { map, columns, n } = view.model, key = `${view.cell}|${view.sort}`;
  if (view.model.key === key) return { order: view.model.order, columns };
  const cell = map.cells.indexOf(view.cell);
  let order = Array.from({ length: n }, (_, at) => at).filter((at) => cell < 0 || map.hosts.cell[at] === cell);
  order.sort((one, other) => map.hosts.cell[one] - map.hosts.cell[other] || natural.compare(map.hosts.name[one], map.hosts.name[other]));
  const column = columns.find((each) => each.id === view.sort);
  if (column) order = order.map((at, place) => [at, place]).sort((one, other) => column.part[other[0]] - column.part[one[0]] || one[1] - other[1]).map(([at]) => at);
  Object.assign(view.model, { key, order });
  return { order, columns };
}

let asked = 0;
function schedule() { if (!asked) asked = requestAnimationFrame(() => { asked = 0; paint(); }); }
addEventListener("resize", () => { if (view.canvas?.isConnected) schedule(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (view.canvas?.isConnected) schedule(); });

// Free is pale, full is strong: what runs out is what is seen first.
function ramp(dark) {
  return Array.from({ length: 101 }, (_, at) => {
    const part = at / 100, hue = 170 - 165 * part ** 0.8;
    return dark ? `hsl(${hue} ${35 + 35 * part}% ${22 + 34 * part}%)` : `hsl(${hue} ${45 + 25 * part}% ${86 - 38 * part}%)`;
  });
}
const RAMPS = { dark: ramp(true), light: ramp(false) };

function paint() {
  const { canvas } = view, box = canvas.parentElement.parentElement, { order, columns } = arranged(), { map } = view.model;
  const style = getComputedStyle(box), ratio = devicePixelRatio || 1;
  const width = Math.max(box.clientWidth, NAMES_PX + columns.length * NARROW_PX), height = box.clientHeight;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`; canvas.style.height = `${height}px`;
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const ink = style.getPropertyValue("--ink"), quiet = style.getPropertyValue("--quiet"), line = style.getPropertyValue("--line"), bad = style.getPropertyValue("--bad"), wait = style.getPropertyValue("--wait");
  const colours = RAMPS[style.colorScheme === "dark" ? "dark" : "light"], wide = columnWidth(width, columns);
  const HEAD_PX = view.head = wide > WIDE_PX ? LOW_HEAD_PX : HIGH_HEAD_PX, size = view.size, first = Math.floor(view.top / size), last = Math.min(order.length, Math.ceil((view.top + height - HEAD_PX) / size) + 1);
  pen.font = "12px system-ui, sans-serif";
  for (let row = first; row < last; row++) {
    const at = order[row], y = HEAD_PX + row * size - view.top;
    if (y < HEAD_PX - size) continue;
    const state = map.hosts.state[at];
    if (size >= 12) { pen.fillStyle = state === 2 ? bad : state === 1 ? wait : ink; pen.fillText(map.hosts.name[at] + (state ? ` (${STATES[state]})` : ""), 4, y + size - 4, NAMES_PX - 8); }
    else if (state) { pen.fillStyle = state === 2 ? bad : wait; pen.fillRect(NAMES_PX - 12, y, 8, Math.max(1, size)); }
    for (let column = 0; column < columns.length; column++) {
      const part = columns[column].part[at], x = NAMES_PX + column * wide;
      pen.fillStyle = part < 0 ? line : colours[Math.round(Math.min(1, Math.max(0, part)) * 100)];
      if (part < 0) pen.fillRect(x + wide / 2 - 1, y + size / 2, 2, 1);
      else pen.fillRect(x, y, wide - 1, size > 4 ? size - 1 : size);
    }
  }
  if (size < 12) labels(pen, order, map, first, last, quiet);
  head(pen, columns, wide, width, style.getPropertyValue("--card"), ink);
  if (view.at) mark(pen, wide, ink);
}

function labels(pen, order, map, first, last, quiet) {
  const HEAD_PX = view.head;
  let before = -1;
  for (let row = first; row < last; row++) {
    const y = HEAD_PX + row * view.size - view.top;
    if (y - before < 18) continue;
    before = y;
    pen.fillStyle = quiet;
    pen.fillText(map.hosts.name[order[row]], 4, y + 12, NAMES_PX - 20);
  }
}

function head(pen, columns, wide, width, back, ink) {
  const HEAD_PX = view.head;
  pen.fillStyle = back;
  pen.fillRect(0, 0, width, HEAD_PX);
  pen.fillStyle = ink;
  columns.forEach((each, at) => {
    pen.save();
    pen.translate(NAMES_PX + at * wide + wide / 2 - 4, HEAD_PX - 6);
    if (wide > WIDE_PX) { pen.fillText(each.name, -wide / 2 + 6, 0, wide - 8); } else { pen.rotate(-Math.PI / 3.4); pen.fillText(each.name, 0, 0, HEAD_PX * 1.1); }
    pen.restore();
  });
}

function mark(pen, wide, ink) {
  const { row, column } = view.at, y = view.head + row * view.size - view.top;
  if (y < view.head) return;
  pen.strokeStyle = ink;
  pen.lineWidth = 2;
  pen.strokeRect(NAMES_PX + column * wide, y, wide - 1, Math.max(3, view.size - 1));
}

const columnWidth = (width, columns) => (width - NAMES_PX) / Math.max(1, columns.length);

function point(event, order, columns) {
  const canvas = view.canvas.getBoundingClientRect(), HEAD_PX = view.head;
  const row = Math.floor((event.clientY - canvas.top - HEAD_PX + view.top) / view.size), column = Math.floor((event.clientX - canvas.left - NAMES_PX) / columnWidth(canvas.width, columns));
  if (event.clientY - canvas.top < HEAD_PX || row < 0 || row >= order.length || column < 0 || column >= columns.length) return;
  view.at = { row, column };
  told(order, columns);
}

function move(event, order, columns) {
  const by = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-20, 0], PageDown: [20, 0], Home: [-1e9, 0], End: [1e9, 0] }[event.key];
  if (!by || !order.length) return;
  event.preventDefault();
  const { row, column } = view.at || { row: 0, column: 0 }, clamp = (n, most) => Math.min(most, Math.max(0, n));
  view.at = view.at || !event.key.startsWith("Arrow") ? { row: clamp(row + by[0], order.length - 1), column: clamp(column + by[1], columns.length - 1) } : { row: 0, column: 0 };
  const box = event.currentTarget, y = view.at.row * view.size, room = box.clientHeight - view.head - view.size;
  if (y < box.scrollTop) box.scrollTop = y; else if (y > box.scrollTop + room) box.scrollTop = y - room;
  told(order, columns);
}

function told(order, columns) {
  document.getElementById("readout").textContent = read(order, columns);
  schedule();
}

function read(order, columns) {
  const { map } = view.model, at = order[view.at.row], column = columns[view.at.column];
  if (at === undefined || !column) return "";
  const where = `${map.hosts.name[at]} in ${map.cells[map.hosts.cell[at]]}${map.hosts.state[at] ? `, ${STATES[map.hosts.state[at]]}` : ""}`;
  if (column.segment) return `${where}: ${column.part[at] < 0 && column.segment.total ? `not wired to ${column.name}` : `${column.name} has ${column.segment.free} of ${column.segment.total} addresses free`}`;
  return `${where}: ${amount(column.free[at], column.unit)} of ${amount(column.total[at], column.unit)} ${column.label} free`;
}
