// A timeline of the last steps: a row an actor, a bar a job. Wheel zooms, dragging moves, arrows and + - do both.
import { el, ask, css, seconds, panel, tip, failed } from "/page/lib.js";

const kinds = [["F", "--f", "forward"], ["B", "--b", "backward"], ["I", "--i", "gradients of inputs"], ["W", "--w", "gradients of weights"], ["", "--o", "data, copies, checkpoints"]];
const step = ["--s", "optimizer step"];
const left = 92, top = 24;

// Timeline has a lane for each run that is shown; all have one scale of time, so that steps are compared by eye.
export class Timeline {
  constructor(app) { this.app = app; this.steps = 1; this.lanes = []; }
  mount(root) {
    const pick = el("select", { "aria-label": "steps", onchange: (e) => { this.steps = +e.target.value; this.load(); } }, ...[1, 2, 4, 8].map((n) => el("option", { value: n, selected: n === this.steps }, `${n} step${n > 1 ? "s" : ""}`)));
    const item = (v, t) => el("span", {}, el("i", { css: { background: `var(${v})` } }), t);
    this.box = el("div", {});
    root.replaceChildren(el("div", { class: "bar" }, pick, el("button", { onclick: () => this.load() }, "newest"), el("button", { onclick: () => { this.less.textContent = ""; this.see(null); } }, "whole"), this.less = el("span", { class: "quiet" }),
      el("div", { class: "legend" }, ...kinds.map(([, v, t]) => item(v, t)), item(...step), el("span", {}, "empty: waits"))), this.box,
      el("p", { class: "quiet" }, "wheel: zoom · drag: move · a bar: its action (stage, kind, microbatch, segment), time and step"));
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.box);
    this.load();
  }
  unmount() { this.watcher?.disconnect(); this.lanes = []; }
  theme() { this.draw(); }
  draw() { this.lanes.forEach((l) => l.draw()); }
  see(view) { this.view = view; this.draw(); }
  async load() {
    const ids = [...new Set([this.app.main, ...this.app.shown])];
    const lanes = this.lanes = ids.map((id) => new Lane(this));
    this.box.replaceChildren(...this.lanes.map((l, k) => panel(this.app.run(ids[k])?.name ?? "", l.note, l.box)));
    await Promise.all(lanes.map((l, k) => l.load(ids[k], this.steps)));
    if (lanes !== this.lanes || !lanes.length) return; // another page is open by now, or other runs
    this.end = Math.max(1e-9, ...this.lanes.map((l) => l.end ?? 0)); this.begin = Math.min(0, ...this.lanes.map((l) => l.begin ?? 0));
    // of runs whose steps take far longer than those of the main one, the beginning is shown at first
    const own = this.lanes[0].end ?? this.end, near = Math.max(own, ...this.lanes.map((l) => l.end ?? 0).filter((e) => e <= 3 * own));
    this.view = near < this.end ? [this.begin, near] : null;
    this.less.textContent = this.view ? "some runs' steps are longer than what is shown: whole shows all of them" : "";
    this.draw();
  }
}

// shape puts what the server tells of jobs in order: a row an actor, loaders first.
export function shape(data) {
  const rank = (a) => a.startsWith("rank") ? +a.slice(4) : a.startsWith("loader") ? -10 + a.charCodeAt(a.length - 1) / 256 : -20;
  const order = data.actors.map((a, i) => i).sort((a, b) => rank(data.actors[a]) - rank(data.actors[b])), row = [];
  order.forEach((a, r) => { row[a] = r; });
  let end = 1e-9, begin = 0, first = Infinity, last = 0;
  for (const j of data.jobs) { end = Math.max(end, j[1] + j[2]); begin = Math.min(begin, j[1]); first = Math.min(first, j[4]); last = Math.max(last, j[4]); }
  return { order, row, end, begin, first, last };
}

class Lane {
  constructor(page) {
    this.page = page;
    this.canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": "timeline of the last steps" });
    this.box = el("div", { class: "scroll" }, this.canvas); this.note = el("p", { class: "quiet" });
    this.listen();
  }
  get view() { return this.page.view; }
  get end() { return this.own?.end; }
  get begin() { return this.own?.begin; }
  async load(id, steps) {
    try {
      this.data = await ask(`/api/runs/${id}/jobs?steps=${steps}`);
      this.own = shape(this.data); this.order = this.own.order; this.row = this.own.row;
      this.note.textContent = this.data.jobs.length ? `${this.data.live ? "the newest of a run under way" : "the last that the trace has"}: ${this.own.first === this.own.last ? "step " + this.own.last : `steps ${this.own.first} to ${this.own.last}`}, ${seconds(this.own.end)}${this.data.cut ? "; there are more jobs" : ""}` : "no jobs";
    } catch (e) { this.data = null; this.box.replaceChildren(failed(e)); }
  }
  colour(k, name) {
    if (k === "" || !k) return css("--o");
    const c = kinds.find((x) => x[0] === k);
    return css(c ? c[1] : step[0]);
  }
  draw() {
    if (!this.data || !this.data.jobs.length) return;
    if (!this.canvas.isConnected) this.box.replaceChildren(this.canvas);
    const ratio = devicePixelRatio || 1, wide = this.box.clientWidth, rows = this.order.length, h = rows > 400 ? 1 : rows > 200 ? 3 : rows > 64 ? 8 : rows > 16 ? 20 : 30, high = top + rows * h + 6;
    const c = this.canvas; c.width = wide * ratio; c.height = high * ratio; c.style.setProperty("height", high + "px");
    const x = c.getContext("2d"); x.scale(ratio, ratio); x.font = "11px system-ui";
    const [a, b] = this.view || [this.page.begin, this.page.end], k = (wide - left - 8) / (b - a), dim = css("--dim"), grid = css("--grid"), ink = css("--ink");
    this.h = h; this.k = k; this.a = a;
    const raw = (b - a) / Math.max(2, wide / 130), unit = 10 ** Math.floor(Math.log10(raw)), gap = [1, 2, 5, 10].map((m) => m * unit).find((v) => v >= raw);
    for (let t = Math.ceil(a / gap) * gap; t <= b; t += gap) { x.fillStyle = grid; x.fillRect(left + (t - a) * k, top - 4, 1, high); x.fillStyle = dim; x.fillText(seconds(Math.abs(t) < gap / 1e6 ? 0 : t), left + (t - a) * k + 3, 13); }
    for (let r = 0; r < rows; r++) {
      if (h < 12 && r % (h < 5 ? 32 : 8)) continue;
      x.fillStyle = dim; x.fillText(this.data.actors[this.order[r]], 4, top + r * h + (h < 12 ? h : h / 2 + 4));
      x.fillStyle = grid; x.fillRect(left, top + r * h + h - 1, wide, .5);
    }
    x.save(); x.beginPath(); x.rect(left, 0, wide, high); x.clip();
    const tone = new Map();
    this.data.jobs.forEach((j, i) => {
      const kind = this.data.kinds[i], px = left + (j[1] - a) * k, w = Math.max(.6, j[2] * k);
      if (px + w < left || px > wide) return;
      if (!tone.has(kind)) tone.set(kind, this.colour(kind));
      x.fillStyle = tone.get(kind); x.fillRect(px, top + this.row[j[0]] * h + Math.min(2, h / 8), w, h - Math.min(4, h / 4));
      if (w > 34 && h > 12) { x.fillStyle = "#fff"; x.save(); x.beginPath(); x.rect(px, 0, w - 2, high); x.clip(); x.fillText(j[3], px + 3, top + this.row[j[0]] * h + h / 2 + 4); x.restore(); }
    });
    x.restore();
    c.setAttribute("aria-label", `timeline of ${rows} actors, ${this.data.jobs.length} jobs, ${this.note.textContent}`);
  }
  move(by, zoom, at) {
    if (!this.data) return;
    const p = this.page;
    let [a, b] = p.view || [p.begin, p.end];
    const mid = at === undefined ? (a + b) / 2 : at, width = (b - a) * zoom;
    a = mid - (mid - a) * zoom + by * width; b = a + width;
    if (width >= p.end - p.begin) { p.see(null); return; }
    if (a < p.begin) { a = p.begin; b = a + width; }
    if (b > p.end) { b = p.end; a = b - width; }
    p.see([a, b]);
  }
  listen() {
    const c = this.canvas;
    c.addEventListener("wheel", (e) => { e.preventDefault(); this.move(0, e.deltaY > 0 ? 1.25 : .8, this.a + (e.offsetX - left) / this.k); }, { passive: false });
    c.addEventListener("pointerdown", (e) => { this.drag = e.clientX; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointerup", () => { this.drag = null; });
    c.addEventListener("pointermove", (e) => {
      if (!this.data) return;
      if (this.drag !== null && this.drag !== undefined) { const [a, b] = this.view || [this.page.begin, this.page.end]; this.move(-(e.clientX - this.drag) / this.k / (b - a), 1); this.drag = e.clientX; return; }
      const t = this.a + (e.offsetX - left) / this.k, r = Math.floor((e.offsetY - top) / this.h);
      const i = this.data.jobs.findIndex((j) => this.row[j[0]] === r && j[1] <= t && t <= j[1] + Math.max(j[2], 1.5 / this.k));
      const j = this.data.jobs[i];
      tip(e, j ? `${this.data.actors[j[0]]}: ${j[3]}, step ${j[4]}\n${seconds(j[2])}, from ${seconds(j[1])}` : "");
    });
    c.addEventListener("pointerleave", (e) => tip(e));
    c.addEventListener("keydown", (e) => {
      const act = { ArrowLeft: [-.2, 1], ArrowRight: [.2, 1], "+": [0, .7], "-": [0, 1.4] }[e.key];
      if (act) { e.preventDefault(); this.move(...act); }
    });
  }
}
