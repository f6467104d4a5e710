// Nodes from functions, and `morph`, which makes what is shown equal to what was made and keeps focus, scroll and what is typed.
const SVG = "http://www.w3.org/2000/svg";
const SVG_TAGS = new Set(["svg", "g", "rect", "path", "line", "circle", "text", "title"]);

export function h(tag, props, ...children) {
  const node = SVG_TAGS.has(tag) ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node[name] = value;
    else if (name === "vars") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name === "draw") node.draw = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(9).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

const HANDLERS = ["onclick", "oninput", "onchange", "onsubmit", "onkeydown", "onpointermove", "onpointerleave", "onscroll", "ontoggle"];

function same(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName
    && (one.nodeType !== 1 || (one.getAttribute("data-key") || "") === (other.getAttribute("data-key") || ""));
}

export function morph(parent, wanted) {
  let at = parent.firstChild;
  for (const node of wanted) {
    if (at && !same(at, node) && node.nodeType === 1 && node.hasAttribute("data-key")) {
      let found = at.nextSibling;
      while (found && !same(found, node)) found = found.nextSibling;
      if (found) { parent.insertBefore(found, at); at = found; }
    }
    if (at && same(at, node)) {
      const next = at.nextSibling;
      update(at, node);
      at = next;
    } else {
      parent.insertBefore(node, at);
      drawn(node);
    }
  }
  while (at) { const next = at.nextSibling; at.remove(); at = next; }
}

function drawn(node) {
  if (node.draw) node.draw(node);
  for (const child of node.children || []) drawn(child);
}

function update(old, fresh) {
  if (old.nodeType !== 1) {
    if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
    return;
  }
  for (const name of HANDLERS) if (old[name] || fresh[name]) old[name] = fresh[name];
  for (const { name } of [...old.attributes]) {
    if (name !== "style" && !fresh.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS") && !old.draw) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) if (name !== "style" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  if (!old.draw && old.style.cssText !== fresh.style.cssText) old.style.cssText = fresh.style.cssText;  // as an attribute the content security policy refuses it
  if (fresh.draw) { old.draw = fresh.draw; old.draw(old); return; }
  if (old.nodeName === "INPUT" || old.nodeName === "TEXTAREA") return;
  morph(old, [...fresh.childNodes]);
}
