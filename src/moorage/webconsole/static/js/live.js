// What comes from the console's own server: the session, one stream of a topic, and changes with the session's CSRF token.
export class Failure extends Error {
  constructor(status, sentence) { super(sentence); this.status = status; }
}

export const state = { session: null };

export function over() {
  const here = location.pathname + location.search;
  location.replace(`/login?over=1&next=${encodeURIComponent(here)}`);
}

export async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": state.session.csrf },
    body: JSON.stringify(body),
  };
  let reply;
  try { reply = await fetch(path, options); }
  catch { throw new Failure(0, "The console does not answer. It is tried again by itself."); }
  if (reply.status === 401) { over(); throw new Failure(401, "The session is over."); }
  let told = {};
  try { told = await reply.json(); } catch { if (reply.ok) throw new Failure(502, "The console's answer cannot be read."); }
  if (!reply.ok) throw new Failure(reply.status, told.error || `The console answers ${reply.status}.`);
  return told;
}

export const topicOnce = (topic) => ask(`/api/topic?topic=${encodeURIComponent(topic)}`);
export const change = (what) => ask("/api/change", what);

const RETRY_MS = [1000, 2000, 5000, 10000];

// Follows a topic while the page is to be seen; a hidden tab follows nothing.
export class Stream {
  constructor(topic, onData, onTrouble) {
    Object.assign(this, { topic, onData, onTrouble, source: null, failed: 0, timer: 0, ended: false });
    this.look = () => (document.hidden ? this.pause() : this.open());
    document.addEventListener("visibilitychange", this.look);
    this.look();
  }
  open() {
    if (this.source || this.ended) return;
    const source = this.source = new EventSource(`/events?topic=${encodeURIComponent(this.topic)}`);
    source.addEventListener("data", (event) => this.took(JSON.parse(event.data)));
    source.addEventListener("changed", () => this.fetch());
    source.addEventListener("trouble", (event) => this.onTrouble(JSON.parse(event.data).sentence));
    source.addEventListener("over", over);
    source.onerror = () => { if (source === this.source) { this.pause(); this.why(); } };
  }
  took(data) { this.failed = 0; if (!this.ended) { this.onTrouble(""); this.onData(data); } }
  async fetch() {
    try { this.took(await topicOnce(this.topic)); } catch (failure) { if (!this.ended) this.onTrouble(failure.message); }
  }
  // A stream that was refused says nothing of why; the same question without a stream does.
  async why() {
    try { await topicOnce(this.topic); } catch (failure) {
      if (!this.ended) this.onTrouble(failure.message, failure.status);
      if ([400, 403, 404].includes(failure.status)) return;
    }
    clearTimeout(this.timer);
    this.timer = setTimeout(this.look, RETRY_MS[Math.min(this.failed++, RETRY_MS.length - 1)]);
  }
  pause() { this.source?.close(); this.source = null; clearTimeout(this.timer); }
  close() { this.ended = true; this.pause(); document.removeEventListener("visibilitychange", this.look); }
}
