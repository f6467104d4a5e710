// The login page: sends what was typed once, and keeps none of it.
const $ = (id) => document.getElementById(id);
const forms = { password: $("password"), credential: $("credential") };

function choose(which) {
  for (const [name, form] of Object.entries(forms)) {
    form.hidden = name !== which;
    $(`by-${name}`).setAttribute("aria-pressed", String(name === which));
  }
  forms[which].querySelector("input").focus();
}

async function send(event) {
  event.preventDefault();
  const form = event.currentTarget, button = form.querySelector("button.main");
  button.disabled = true;
  $("say").textContent = "";
  try {
    const reply = await fetch("/api/login", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(Object.fromEntries(new FormData(form))),
    });
    if (reply.ok) {
      const next = new URLSearchParams(location.search).get("next") || "/";
      location.replace(/^\/(?![/\\])/.test(next) ? next : "/");
      return;
    }
    $("say").textContent = (await reply.json()).error;
  } catch {
    $("say").textContent = "The console does not answer. Try again.";
  }
  button.disabled = false;
}

for (const form of Object.values(forms)) form.addEventListener("submit", send);
$("by-password").addEventListener("click", () => choose("password"));
$("by-credential").addEventListener("click", () => choose("credential"));
if (new URLSearchParams(location.search).has("over")) $("say").textContent = "The session is over. Log in again.";
const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
