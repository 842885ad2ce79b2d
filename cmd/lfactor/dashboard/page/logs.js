// Actors: what each does now, and what it has said and done lately, by actor, host and level.
import { el, ask, seconds, clock, table, panel, failed } from "/page/lib.js";

const most = 4000; // lines that are kept
const rows = 500; // that are drawn of them
const order = ["info", "warn", "error"];

export class Actors {
  constructor(app) { this.app = app; this.actor = this.host = this.level = this.text = ""; }
  async mount(root) {
    this.lines = new Map(); this.now = []; this.before = 0;
    const pick = (name) => el("select", { "aria-label": name, onchange: (e) => { this[name] = e.target.value; this.draw(); } });
    this.picks = { actor: pick("actor"), host: pick("host"), level: pick("level") };
    const find = el("input", { type: "search", placeholder: "find in texts", "aria-label": "find in texts", value: this.text, oninput: (e) => { this.text = e.target.value.toLowerCase(); this.draw(); } });
    this.note = el("span", { class: "quiet" });
    this.state = el("div", { class: "scroll short" });
    this.list = el("div", { class: "scroll" });
    root.replaceChildren(el("div", { class: "bar" }, ...Object.values(this.picks), find, this.note), panel("Now", this.state), panel("Lately", this.list));
    const lines = this.lines, run = this.app.main;
    try {
      const d = await ask(`/api/runs/${run}/logs?most=2000`);
      if (lines !== this.lines) return; // another run is shown by now
      this.before = d.before;
      this.heard({ ...d, run });
    } catch (e) { root.replaceChildren(failed(e)); this.list = null; }
  }
  unmount() { this.list = null; }
  // heard takes in what is new. The jobs of a step of an actor are one line, of which the newest counts.
  heard(d) {
    if (!this.list || d.run !== this.app.main) return;
    this.now = d.now;
    for (const l of d.lines) {
      const key = l.kind === "jobs" ? `${l.actor} ${l.step}` : `${l.time} ${l.actor} ${l.text}`;
      this.lines.delete(key);
      this.lines.set(key, l);
    }
    if (this.lines.size > most) {
      const all = [...this.lines].sort((a, b) => a[1].time - b[1].time);
      this.before += all.length - most;
      this.lines = new Map(all.slice(-most));
    }
    this.draw();
  }
  choices(name, all) {
    const have = [...new Set([...all, this[name]])].filter((v) => v).sort((a, b) => a.localeCompare(b, undefined, { numeric: true })), key = have.join("\n");
    if (this.picks[name].dataset.have === key) return; // an open list stays open
    this.picks[name].dataset.have = key;
    this.picks[name].replaceChildren(el("option", { value: "" }, `every ${name}`), ...have.map((v) => el("option", { value: v, selected: v === this[name] }, v)));
  }
  lets(l) {
    return (!this.actor || l.actor === this.actor) && (!this.host || l.host === this.host) && (!this.level || order.indexOf(l.level) >= order.indexOf(this.level)) && (!this.text || l.text.toLowerCase().includes(this.text));
  }
  draw() {
    if (!this.list) return;
    const all = [...this.lines.values()], now = this.now.map((n) => ({ ...n, actor: n.name, text: `${n.state} ${n.text}` }));
    this.choices("actor", [...all, ...now].map((l) => l.actor)); this.choices("host", [...all, ...now].map((l) => l.host)); this.choices("level", order);
    const tag = (l, text) => el("span", { class: "tag " + (l.level === "info" ? "" : l.level) }, text);
    const here = now.filter((n) => this.lets(n)).sort((a, b) => order.indexOf(b.level) - order.indexOf(a.level));
    this.state.replaceChildren(here.length ? table(["actor", "place", "host", "state", "what", "for"], here.slice(0, rows).map((n) => [n.name, n.where, n.host, tag(n, n.state), n.text.slice(n.state.length + 1), seconds(n.age)]), [5])
      : el("p", { class: "quiet" }, this.now.length ? "No actor is meant by what was chosen." : "No run is under way in this folder."));
    const kept = all.filter((l) => this.lets(l)).sort((a, b) => b.time - a.time);
    this.note.textContent = `${kept.length} of ${all.length} lines, the newest first${kept.length > rows ? `, of which ${rows} are shown` : ""}${this.before ? `; ${this.before} older ones are left out` : ""}`;
    this.list.replaceChildren(table(["time", "actor", "host", "kind", "step", "text"], kept.slice(0, rows).map((l) => [l.since ? "+" + seconds(l.time) : clock(l.time * 1e3), l.actor, l.host, tag(l, l.kind), l.step === undefined ? "" : String(l.step), l.text]), [4]));
  }
}
