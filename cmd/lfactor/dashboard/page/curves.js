// Curves of one run or several, with zoom and smoothing. What is zoomed into is asked for again, so that no step is hidden.
import { el, ask, colours, css, si, bytes, seconds, share, smooth, save, failed } from "/page/lib.js";

const charts = [
  ["loss", "Loss", si, true], ["grad_norm", "Gradient norm", si], ["tokens", "Tokens a second", si], ["mfu", "MFU", share],
  ["wait", "Data wait, share of the step", share], ["seconds", "Time of a step", seconds], ["lr", "Learning rate", si], ["memory", "Memory of the rank that needs most", bytes],
  ["drawn_gap", "Log-probabilities of sampler and trainer, largest difference", si],
];
const rare = new Set(["drawn_gap"]); // not drawn where no run has any
const smoothed = new Set(["loss", "grad_norm"]); // what a step's samples make noisy; rates, counts and memory are what they are
const points = 1200;
// along is what curves may go along: steps, tokens that were seen, time that the run took.
const along = { step: ["steps", (v) => v !== Math.trunc(v) ? "" : v < 1e5 ? String(v) : si(v)], seen: ["tokens", (v) => si(v)], elapsed: ["time", (v) => seconds(v)] };
const known = new Set([...charts.map(([key]) => key), "slowest", "seen", "elapsed", "step", "evals", "zoom"]);
const groups = { rewards: "Rewards", reward: "Rewards", logps: "Log-probabilities of answers", logits: "Logits of answers", loss: "Loss by source", tokens: "Tokens by source", clip_ratio: "Clipped tokens", completions: "Answers" };
// further are the columns that some of the runs have beside those, by group: what their objective has shown.
const further = (all) => [...new Set(all.flatMap((d) => Object.keys(d).filter((k) => Array.isArray(d[k]) && !known.has(k))))]
  .map((k) => [groups[k.split("/")[0].split("_std")[0]] ?? "Objective", k]).sort().map(([group, k]) => [k, k, si, false, group]);

// wide is the room of an axis' numbers.
const wide = (u, values) => Math.max(62, 20 + 7 * Math.max(0, ...(values ?? []).map((v) => v.length)));

export class Curves {
  constructor(app) {
    this.app = app; this.data = new Map(); this.plots = []; this.zoom = null; this.find = ""; this.tau = +(localStorage.getItem("tau") ?? 20); this.log = false;
    this.x = along[localStorage.getItem("x")] ? localStorage.getItem("x") : "step";
  }
  mount(root) {
    this.root = root; this.plots = [];
    this.cards = el("div", { class: "cards", "aria-live": "off" });
    const value = el("output", {}, String(this.tau));
    const slider = el("input", { type: "range", min: 0, max: 100, value: Math.round(Math.sqrt(this.tau) * 4), id: "tau", "aria-label": "smoothing, steps",
      oninput: (e) => { this.tau = Math.round((e.target.value / 4) ** 2); value.textContent = this.tau; localStorage.setItem("tau", this.tau); this.draw(); } });
    const reset = el("button", { onclick: () => this.reset(), title: "show all steps (r)" }, "all steps");
    const log = el("label", {}, el("input", { type: "checkbox", onchange: (e) => { this.log = e.target.checked; this.build(); this.draw(); } }), " logarithmic loss and norm");
    const x = el("select", { "aria-label": "curves along", onchange: (e) => { this.x = e.target.value; localStorage.setItem("x", this.x); this.build(); this.draw(); } },
      ...Object.entries(along).map(([k, [name]]) => el("option", { value: k, selected: k === this.x }, "by " + name)));
    const csv = el("button", { title: "all columns of the steps that are shown, of all runs that are compared", onclick: () => this.csv(csv) }, "CSV");
    const find = el("input", { type: "search", placeholder: "find curves", "aria-label": "find curves", value: this.find, oninput: (e) => { this.find = e.target.value.toLowerCase(); this.draw(); this.resize(); } });
    this.range = el("span", { class: "quiet" });
    this.grid = el("div", { class: "charts" });
    root.replaceChildren(this.cards, el("div", { class: "bar" }, el("label", { for: "tau" }, "smoothing"), slider, value, el("span", { class: "quiet" }, "steps"), x, log, reset, csv, find, this.range,
      el("span", { class: "quiet" }, "drag to zoom, double-click for all")), this.grid);
    this.build();
    this.load();
    this.watcher = new ResizeObserver(() => this.resize());
    this.watcher.observe(root);
  }
  unmount() { this.watcher?.disconnect(); this.plots.forEach((p) => p.u?.destroy()); this.plots = []; }
  build() {
    this.plots.forEach((p) => p.u?.destroy());
    this.extra = further([...this.data.values()]);
    this.plots = [...charts, ...this.extra].map(([key, title, format, wide, group]) => {
      const read = el("span", { class: "read" });
      const box = el("div", { role: "img", "aria-label": title });
      return { key, title, format, read, box, group, node: el("section", { class: "panel chart" + (wide ? " wide" : "") }, el("div", { class: "head" }, el("h3", {}, title), read, el("button", { class: "save", title: "save as a picture", "aria-label": `save ${title} as a picture`, onclick: () => this.png(key) }, "PNG")), box), wide };
    });
    this.grid.replaceChildren(...this.plots.flatMap((p, i) => p.group && p.group !== this.plots[i - 1].group ? [el("h2", { class: "wide" }, p.group), p.node] : [p.node]));
  }
  async load() {
    try {
      for (const id of this.app.shown) await this.fetch(id);
      this.draw();
    } catch (e) { this.grid.replaceChildren(failed(e)); }
  }
  async fetch(id) {
    const q = this.zoom ? `&from=${Math.floor(this.zoom[0])}&to=${Math.ceil(this.zoom[1])}` : "";
    const d = await ask(`/api/runs/${id}/series?points=${points}${q}`);
    this.data.set(id, { ...d.series, evals: d.evals || [], zoom: this.zoom });
  }
  // more takes in new steps as they come.
  more(id, of) {
    const d = this.data.get(id);
    if (!d || this.zoom) return;
    if (d.width > 1 || d.step.length > 2 * points || d.life !== of.life) { this.again(id); return; }
    for (const k of Object.keys(of)) if (Array.isArray(of[k])) d[k].push(...of[k]);
    d.newest = of.newest ?? d.newest;
    this.soon();
  }
  evals(id, evals) { const d = this.data.get(id); if (d) { d.evals = evals; this.soon(); } }
  again(id) {
    if (this.waiting || this.zoom) return;
    this.waiting = setTimeout(async () => { this.waiting = null; try { await this.fetch(id); this.draw(); } catch { /* the next time */ } }, 2000);
  }
  soon() { if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = null; this.draw(); }); }
  reset() { this.zoom = null; this.load(); }
  // zoomTo shows from one place along the curves to another, as steps of the first run that has any there.
  async zoomTo(a, b) {
    const d = this.x === "step" ? null : [...this.app.shown].map((id) => this.data.get(id)).find((d) => d && this.xs(d).some((x) => x >= a && x <= b));
    const at = d ? this.xs(d).flatMap((x, i) => x >= a && x <= b ? [d.step[i]] : []) : [a, b];
    this.zoom = [at[0], at[at.length - 1]];
    await this.load();
  }
  // xs are a run's places along the curves: of a point that stands for several steps the last one's.
  xs(d) { return this.x === "step" ? d.step : d[this.x].map((v) => Array.isArray(v) ? v[2] : v); }
  // csv saves all columns of the steps that are shown, step by step.
  async csv(button) {
    button.disabled = true;
    try {
      const rows = [], names = new Set(["run", "step"]), ids = this.app.shown, [from, to] = this.zoom ?? [0, Infinity];
      for (const id of ids) {
        for (let next = Math.floor(from), last = Math.ceil(to); next <= last;) {
          const d = (await ask(`/api/runs/${id}/series?points=4000&from=${next}&to=${Math.min(last, next + 3999)}`)).series;
          const cols = Object.keys(d).filter((k) => Array.isArray(d[k]));
          cols.forEach((k) => names.add(k));
          d.step.forEach((_, i) => rows.push({ run: this.app.run(id)?.name ?? id, ...Object.fromEntries(cols.map((k) => [k, d[k][i]])) }));
          const all = this.data.get(id)?.step;
          if (!all?.length || next + 3999 >= Math.max(all[all.length - 1], this.app.run(id)?.step ?? 0)) break;
          next += 4000;
        }
      }
      const cell = (v) => v === null || v === undefined ? "" : /[",\n]/.test(v) ? `"${String(v).replaceAll('"', '""')}"` : String(v);
      save("metrics.csv", new Blob([[...names].join(",") + "\n", ...rows.map((r) => [...names].map((n) => cell(r[n])).join(",") + "\n")], { type: "text/csv" }));
    } catch (e) { this.range.textContent = e.message; }
    button.disabled = false;
  }
  // png saves a chart with its title, as it is shown.
  png(key) {
    const p = this.plots.find((p) => p.key === key), from = p.u?.ctx.canvas;
    if (!from) return;
    const k = devicePixelRatio, c = el("canvas", { width: from.width, height: from.height + 28 * k }), g = c.getContext("2d");
    g.fillStyle = css("--card"); g.fillRect(0, 0, c.width, c.height);
    g.fillStyle = css("--ink"); g.font = `600 ${13 * k}px system-ui`;
    g.fillText(`${p.title} · ${this.app.shown.map((id) => this.app.run(id)?.name ?? id).join(", ")}`, 8 * k, 19 * k);
    g.drawImage(from, 0, 28 * k);
    c.toBlob((b) => save(`${key.replaceAll("/", "-")}.png`, b));
  }
  size(p) { return { width: Math.max(200, p.box.clientWidth), height: p.wide ? 300 : 190 }; }
  resize() { for (const p of this.plots) p.u?.setSize(this.size(p)); }
  theme() { this.build(); this.draw(); }
  draw() {
    const ids = this.app.shown.filter((id) => this.data.has(id));
    this.show(ids.includes(this.app.main) ? this.app.main : ids[0]); // whose place in the list is framed
    this.range.textContent = this.zoom ? `steps ${Math.floor(this.zoom[0])} to ${Math.ceil(this.zoom[1])}` : "";
    if (String(further([...this.data.values()])) !== String(this.extra)) this.build();
    for (const p of this.plots) this.chart(p, ids);
  }
  chart(p, ids) {
    const found = `${p.title} ${p.key} ${p.group ?? ""}`.toLowerCase().includes(this.find), maybe = rare.has(p.key) || p.group;
    const any = found && (!maybe || ids.some((id) => this.data.get(id)[p.key]?.some((x) => x !== null)));
    p.node.style.display = any ? "" : "none";
    if (!any) return;
    const tables = [], series = [{}], bands = [];
    for (const id of ids) {
      const d = this.data.get(id), c = colours[id % colours.length], v = d[p.key] ?? d.step.map(() => null);
      const many = d.width > 1;
      const mean = v.map((x) => x === null ? null : many ? x[0] : x);
      const drawn = this.tau > 0 && smoothed.has(p.key);
      const cols = [this.xs(d), mean, drawn ? smooth(d.step, mean, this.tau) : mean.map(() => null)];
      const name = this.app.run(id)?.name ?? id;
      series.push({ label: name, stroke: c + (drawn ? "66" : ""), width: drawn ? 1 : 1.5, points: { show: d.step.length < 3 }, run: id });
      series.push({ label: name + " smoothed", stroke: c, width: 1.8, show: drawn, points: { show: false }, smooth: true });
      if (many) {
        cols.push(v.map((x) => x && x[1]), v.map((x) => x && x[2]));
        series.push({ band: true, stroke: "transparent", points: { show: false } }, { band: true, stroke: "transparent", points: { show: false } });
        bands.push({ series: [series.length - 1, series.length - 2], fill: c + "22" });
      }
      tables.push(cols);
      if (p.key === "loss" && d.evals.length) {
        const e = d.evals.filter((x) => !this.zoom || x.step >= this.zoom[0] && x.step <= this.zoom[1]);
        if (e.length) {
          tables.push([e.map((x) => this.place(d, x.step)), e.map((x) => x.loss)]);
          series.push({ label: name + " evaluation", stroke: c, dash: [5, 4], width: 1.5, spanGaps: true, points: { show: true, size: 7, fill: c }, evaluation: true });
        }
      }
    }
    if (!tables.length || !tables[0][0].length) { p.u?.destroy(); p.u = null; p.box.replaceChildren(el("p", { class: "quiet" }, ids.length && ids.every((id) => this.app.run(id)?.simulated) ? "A simulated step has no curves: see Timeline and Graph." : ids.some((id) => !this.data.has(id)) ? "Loading." : "No step yet.")); return; }
    const data = tables.length === 1 ? tables[0] : uPlot.join(tables);
    const shape = JSON.stringify([series.map((s) => [s.label, s.show, s.stroke]), this.log, this.x]);
    if (p.u && p.shape === shape) { p.u.setData(data); this.read(p); return; }
    p.shape = shape; p.u?.destroy(); p.box.replaceChildren();
    const ink = css("--dim"), grid = css("--grid");
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid, width: 1 }, font: "11px system-ui" };
    const log = this.log && (p.key === "loss" || p.key === "grad_norm");
    p.u = new uPlot({
      ...this.size(p), series, bands, padding: [10, 22, 0, 0],
      scales: { x: { time: false }, y: log ? { distr: 3 } : { range: (u, lo, hi) => lo === null ? [0, 1] : uPlot.rangeNum(lo, hi === lo ? lo + Math.abs(lo || 1) * .1 : hi, .06, true) } },
      axes: [{ ...axis, size: 28, values: (u, vs) => vs.map(along[this.x][1]) }, { ...axis, size: wide, values: (u, vs) => vs.map((x) => x === null ? "" : p.format(x)) }],
      cursor: { sync: { key: "curves" }, drag: { x: true, y: false, setScale: false }, focus: { prox: 16 } },
      legend: { show: false },
      hooks: {
        setCursor: [() => this.read(p)],
        setSelect: [(u) => {
          if (u.select.width < 6) return;
          const a = u.posToVal(u.select.left, "x"), b = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          this.zoomTo(Math.max(0, a), b);
        }],
      },
    }, data, p.box);
    p.u.over.addEventListener("dblclick", () => this.reset());
    this.read(p);
  }
  // place is where a step lies along the curves.
  place(d, step) {
    let a = 0, b = d.step.length - 1;
    while (a < b) { const m = (a + b) >> 1; if (d.step[m] < step) a = m + 1; else b = m; }
    return this.x === "step" ? step : this.xs(d)[a];
  }
  // places are those of a run's points.
  places(id) {
    const d = this.data.get(id);
    if (!d) return new Set();
    if (d.set?.of !== this.x || d.set.size !== d.step.length) { d.set = new Set(this.xs(d)); d.set.of = this.x; }
    return d.set;
  }
  // read writes the values under the cursor, or the newest: those of steps, not of a smoothed line. One of another step than the
  // cursor's says which, as of a run that has ended; a step whose value is no number has none.
  read(p) {
    if (!p.u) return;
    const at = p.u.cursor.idx, i = at ?? p.u.data[0].length - 1, parts = [];
    p.u.series.forEach((s, k) => {
      if (!k || s.band || s.smooth) return;
      const newest = at === null || at === undefined ? this.data.get(s.run)?.newest : null;
      let j = i, v = newest?.[p.key], step = newest?.[this.x];
      if (!newest) {
        const own = s.evaluation ? null : this.places(s.run);
        const there = (k2) => own ? own.has(p.u.data[0][k2]) : p.u.data[k][k2] !== null && p.u.data[k][k2] !== undefined;
        while (j >= 0 && !there(j)) j--;
        if (j < 0) return;
        v = p.u.data[k][j]; step = p.u.data[0][j];
      }
      const behind = this.x === "step" && step !== p.u.data[0][i] ? ` (step ${step})` : "";
      parts.push((this.app.shown.length > 1 || s.evaluation ? (s.evaluation ? "evaluation" : s.label) + " " : "") + (v === null || v === undefined ? "–" : p.format(v)) + behind);
    });
    p.read.textContent = `${this.x === "step" ? `step ${p.u.data[0][i] ?? "–"}` : `${along[this.x][0]} ${along[this.x][1](p.u.data[0][i])}`}: ${parts.join(" · ")}`;
    p.box.setAttribute("aria-label", `${p.title}, ${p.read.textContent}`);
  }
  show(id) {
    const d = this.data.get(id), run = this.app.run(id);
    if (!d || !d.step.length) { this.cards.replaceChildren(); return; }
    const last = (k) => d.newest?.[k] ?? null; // the step's own, also where points are means of neighbours
    const say = (k) => last(k) === null ? "–" : si(last(k));
    const step = d.step[d.step.length - 1];
    const mid = (k) => { const v = d[k].slice(-50).map((x) => Array.isArray(x) ? x[0] : x).filter((x) => x !== null).sort((a, b) => a - b); return v[v.length >> 1]; };
    const left = run && run.steps > step ? (run.steps - step) * mid("seconds") : 0;
    const card = (name, v) => el("div", { class: "card" }, el("span", {}, name), el("b", {}, v));
    this.cards.replaceChildren(card(run && run.steps ? `step, of ${run.steps}` : "step", String(step)), card("loss", say("loss")), card("gradient norm", say("grad_norm")),
      card("tokens a second", si(mid("tokens"))), card("MFU", share(mid("mfu"))), card("data wait", share(mid("wait"))), card("slowest rank", String(last("slowest"))),
      card(run?.running ? "time left" : "state", run?.running ? seconds(left) : run?.state || "not running"));
  }
}
