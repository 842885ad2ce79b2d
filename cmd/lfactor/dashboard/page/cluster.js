// A cluster: its hosts, its jobs, and what has happened.
import { el, bytes, clock, table, panel, failed, ask } from "/page/lib.js";

const colour = { ready: "ok", busy: "ok", running: "ok", away: "error", drained: "warn", queued: "warn" };

export class Cluster {
  constructor(app, choose) { this.app = app; this.choose = choose; this.host = this.text = ""; }
  async mount(root) {
    const find = el("input", { type: "search", placeholder: "find in events", "aria-label": "find in events", value: this.text, oninput: (e) => { this.text = e.target.value.toLowerCase(); this.draw(); } });
    this.head = el("div", { class: "bar" }); this.hosts = el("div", { class: "scroll short" }); this.jobs = el("div", { class: "scroll short" }); this.events = el("div", { class: "scroll short" });
    root.replaceChildren(this.head, panel("Hosts", this.hosts), panel("Jobs", this.jobs), panel("Events", find, this.events));
    try { this.cluster(await ask("/api/cluster")); } catch (e) { root.replaceChildren(failed(e)); this.head = null; }
  }
  unmount() { this.head = null; }
  cluster(d) { this.last = d; this.draw(); }
  draw() {
    const d = this.last;
    if (!this.head || !d) return;
    const tag = (s) => el("span", { class: "tag " + (colour[s] || "") }, s), since = (t) => t ? new Date(t).toLocaleString([], { hour12: false }) : "";
    this.head.replaceChildren(el("b", {}, d.name), el("span", {}, `head ${d.head}`), el("span", { class: "quiet" }, `lfactor ${d.version}, up since ${since(d.up)}`), ...(d.heads || []).map((h) => el("span", {}, `${h.name} ${h.state}`)), d.wrong ? el("span", { class: "tag error", role: "alert" }, d.wrong) : "");
    this.hosts.replaceChildren(table(["host", "state", "since", "address", "cores", "memory", "disk free", "job", "processes"], d.hosts.map((h) => [h.name, tag(h.state), since(h.since), h.addr, String(h.cores), bytes(h.memory), bytes(h.disk), h.job || "", (h.procs || []).join(" ")]), [4, 5, 6]));
    this.jobs.replaceChildren(d.jobs.length ? table(["job", "name", "state", "hosts", "processes", "started again", "queued", "ended", ""], d.jobs.slice().reverse().map((j) => [j.run < 0 ? j.id : el("button", { onclick: () => this.choose(j.run) }, j.id), j.name, tag(j.state), (j.hosts || []).join(" "), String(j.procs), String(j.restarts), since(j.queued), since(j.ended), j.why || ""]), [4, 5]) : el("p", { class: "quiet" }, "No job yet."));
    const events = d.events.filter((e) => !this.text || `${e.kind} ${e.host || ""} ${e.text}`.toLowerCase().includes(this.text)).reverse();
    this.events.replaceChildren(table(["time", "kind", "host", "job", "text"], events.map((e) => [clock(e.time), el("span", { class: "tag" }, e.kind), e.host || "", e.job || "", e.text])));
  }
}
