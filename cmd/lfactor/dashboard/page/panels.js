// Pages of tables: events, data, checkpoints, plan and settings.
import { el, ask, colours, css, si, bytes, seconds, share, clock, table, panel, failed } from "/page/lib.js";

// leaves are the settings of a run's YAML by their dotted keys: mappings by their indentation, and lists as they stand.
export function leaves(yaml) {
  const out = new Map(), path = [];
  for (const line of yaml.split("\n")) {
    const m = /^( *)([\w./-]+):(?: (.*))?$/.exec(line);
    if (m) {
      while (path.length && path[path.length - 1][0] >= m[1].length) path.pop();
      path.push([m[1].length, m[2]]);
    }
    const key = path.map((p) => p[1]).join(".");
    if (key && line.trim() && (!m || m[3])) out.set(key, ((out.get(key) ?? "") + " " + (m ? m[3] : line.trim())).trim());
  }
  return out;
}

// differences is a table of the settings in which runs that are compared differ.
async function differences(app) {
  try {
    const ids = app.shown.filter((id) => !app.run(id)?.simulated);
    const all = await Promise.all(ids.map(async (id) => leaves((await ask(`/api/runs/${id}/settings`)).yaml)));
    const keys = [...new Set(all.flatMap((s) => [...s.keys()]))].sort().filter((k) => new Set(all.map((s) => s.get(k))).size > 1);
    if (!keys.length) return el("p", { class: "quiet" }, "None.");
    return el("div", { class: "scroll" }, table(["setting", ...ids.map((id) => app.run(id)?.name ?? String(id))], keys.map((k) => [k, ...all.map((s) => s.get(k) ?? "–")])));
  } catch (e) { return failed(e); }
}

export class Events {
  constructor(app) { this.app = app; this.kind = ""; this.text = ""; }
  async mount(root) {
    this.list = []; this.body = el("tbody", {});
    this.pick = el("select", { "aria-label": "kind", onchange: (e) => { this.kind = e.target.value; this.draw(); } });
    const find = el("input", { type: "search", placeholder: "find in texts", "aria-label": "find in texts", oninput: (e) => { this.text = e.target.value.toLowerCase(); this.draw(); } });
    this.note = el("span", { class: "quiet" });
    root.replaceChildren(el("div", { class: "bar" }, this.pick, find, this.note), el("section", { class: "panel" }, el("table", {}, el("thead", {}, el("tr", {}, ...["time", "kind", "step", "text"].map((h) => el("th", { scope: "col" }, h)))), this.body)));
    try {
      const d = await ask(`/api/runs/${this.app.main}/events?most=2000`);
      this.list = d.events; this.before = d.before;
      this.draw();
    } catch (e) { root.replaceChildren(failed(e)); }
  }
  unmount() { this.body = null; }
  more(events) { if (this.body) { this.list.push(...events); this.list = this.list.slice(-4000); this.draw(); } }
  draw() {
    const kinds = [...new Set(this.list.map((e) => e.kind))].sort();
    this.pick.replaceChildren(el("option", { value: "" }, "all kinds"), ...kinds.map((k) => el("option", { value: k, selected: k === this.kind }, k)));
    const rows = this.list.filter((e) => (!this.kind || e.kind === this.kind) && (!this.text || e.text.toLowerCase().includes(this.text)));
    this.note.textContent = this.app.run(this.app.main)?.simulated ? "a simulated step has no events here" : `${rows.length} of ${this.list.length}, the newest first${this.before ? `; ${this.before} older ones are in log.jsonl` : ""}`;
    this.body.replaceChildren(...rows.slice(-500).reverse().map((e) => el("tr", {}, el("td", {}, clock(e.time)), el("td", {}, el("span", { class: "tag " + (e.level === "info" && !e.text.startsWith("!") ? "" : e.level === "error" ? "error" : "warn") }, e.kind)),
      el("td", { class: "n" }, e.step === undefined ? "" : String(e.step)), el("td", {}, e.text + (e.kind === "eval" && e.value !== undefined ? `  loss ${si(e.value)}` : "")))));
  }
}

export class Data {
  constructor(app) { this.app = app; }
  async mount(root) {
    this.root = root;
    try {
      const d = await ask(`/api/runs/${this.app.main}/data`);
      const most = Math.max(0, ...d.stages.map((s) => s.use));
      const bar = (v, c) => el("span", { class: "split", css: { width: "220px" } }, el("i", { css: { width: 100 * Math.min(1, v) + "%", background: `var(${c})` } }));
      const stages = d.stages.length ? table(["stage", "workers", "items", "busy", "", ""], d.stages.map((s) => [s.name, String(s.workers), si(s.items), share(s.use), bar(s.use, s.use === most ? "--warn" : "--accent"), s.use === most && most > 0 ? el("span", { class: "tag" }, "busiest: the bottleneck, if data is waited for") : ""]), [1, 2, 3])
        : el("p", { class: "quiet" }, "Not written down yet: it comes with edges.jsonl, every log.edges seconds.");
      const bad = d.bad.length ? table(["source", "document", "reason"], d.bad.slice().reverse().map((b) => [b.source, String(b.document), b.reason]), [1]) : el("p", { class: "quiet" }, "No document was set aside.");
      root.replaceChildren(panel("Pipeline, by stage, of process 0 since the run began", stages), d.experts.length ? panel(`Experts' load at step ${d.step}`, this.experts(d.experts)) : "",
        panel(`Quarantine${d.before ? ", the newest" : ""}`, bad), panel("Samples of a step", this.samples()));
    } catch (e) { root.replaceChildren(failed(e)); }
  }
  unmount() {}
  experts(list) {
    const rows = list.map((l) => { const sum = l.rows.reduce((a, b) => a + b, 0) || 1; return el("tr", {}, el("td", {}, "layer " + l.block), el("td", {}, el("span", { css: { display: "flex", gap: "1px" } }, ...l.rows.map((n, i) => {
      const x = n * l.rows.length / sum, t = Math.max(-1, Math.min(1, Math.log2(Math.max(x, 1e-3)) / 2));
      return el("i", { title: `expert ${i}: ${n} rows, ${x.toFixed(2)} of even use`, css: { width: "16px", height: "16px", background: t > 0 ? `color-mix(in srgb, var(--bad) ${100 * t}%, var(--soft))` : `color-mix(in srgb, var(--accent) ${-100 * t}%, var(--soft))` } });
    }))), el("td", { class: "n" }, si(l.dropped)), el("td", { class: "n" }, si(l.entropy))); });
    return el("table", {}, el("thead", {}, el("tr", {}, ...["", "experts: red more than even use, blue less", "dropped", "entropy, nats"].map((h, i) => el("th", { class: i > 1 ? "n" : null }, h)))), el("tbody", {}, ...rows));
  }
  samples() {
    const out = el("div", {}), input = el("input", { type: "number", min: 1, "aria-label": "step", placeholder: "newest" });
    const show = async () => {
      try {
        const d = await ask(`/api/runs/${this.app.main}/samples${input.value ? "?step=" + encodeURIComponent(input.value) : ""}`);
        out.replaceChildren(el("p", {}, `Step ${d.step} of ${d.last} saw ${d.samples.length} samples, by their places in the run's order:`), el("pre", {}, d.samples.join(" ")), el("p", { class: "quiet" }, `lfactor data blame ${this.app.run(this.app.main)?.dir} ${d.step} says which files they come from.`), el("p", {}, el("a", { href: `/runs/${this.app.main}/rows?step=${d.step}`, target: "_blank", rel: "noopener" }, `the rows of step ${d.step} as they were trained, and samples of the data`)));
      } catch (e) { out.replaceChildren(failed(e)); }
    };
    show();
    return el("div", {}, el("div", { class: "bar" }, el("label", {}, "step ", input), el("button", { onclick: show }, "show")), out);
  }
}

export class Checkpoints {
  constructor(app) { this.app = app; }
  async mount(root) {
    try {
      const d = await ask(`/api/runs/${this.app.main}/checkpoints`);
      root.replaceChildren(panel(d.dir ? `Checkpoints in ${d.dir}` : "Checkpoints", d.list.length ? table(["step", "saved", "bytes", ""], d.list.map((c) => [String(c.step), c.saved.startsWith("0001") ? "" : new Date(c.saved).toLocaleString([], { hour12: false }), bytes(c.bytes),
        c.wrong ? el("span", { class: "tag error" }, c.wrong) : c.latest ? el("span", { class: "tag ok" }, "latest: a run goes on from here") : ""]), [0, 2]) : el("p", { class: "quiet" }, d.dir ? "None yet." : "The run saves none: checkpoint.dir is empty.")));
    } catch (e) { root.replaceChildren(failed(e)); }
  }
  unmount() {}
}

export class Plan {
  constructor(app) { this.app = app; }
  async mount(root) {
    const settings = el("pre", {});
    const others = this.app.shown.length > 1 ? [panel("Settings in which the runs that are compared differ", await differences(this.app))] : [];
    root.replaceChildren(el("p", { class: "quiet" }, "Laying the plan out…"));
    ask(`/api/runs/${this.app.main}/settings`).then((d) => { settings.textContent = d.yaml; }).catch((e) => { settings.textContent = e.message; });
    try {
      const p = await ask(`/api/runs/${this.app.main}/plan`);
      const most = Math.max(1, ...p.ranks.map((r) => Math.max(r.total, r.held)));
      const parts = [["params", "--f", "weights"], ["state", "--w", "optimizer"], ["grads", "--b", "gradients"], ["activations", "--s", "activations"]];
      const bar = (r) => el("span", { class: "split", css: { width: "260px" } }, ...parts.map(([k, c, t]) => el("i", { title: `${t}: ${bytes(r[k])}`, css: { width: 100 * r[k] / most + "%", background: `var(${c})` } })));
      const held = (r) => el("span", { class: "split", css: { width: "260px", height: "6px" } }, el("i", { css: { width: 100 * r.held / most + "%", background: "var(--dim)" } }));
      const card = (name, a, b, note) => el("div", { class: "card" }, el("span", {}, name), el("b", {}, a), el("span", {}, b), note ? el("span", {}, " · " + note) : "");
      const off = p.step && p.measured ? p.measured > p.step ? `${(p.measured / p.step).toFixed(2)} times as long` : `${(p.step / p.measured).toFixed(2)} times as fast` : "";
      root.replaceChildren(el("div", { class: "cards" }, card("time of a step", p.measured ? seconds(p.measured) : "–", p.step ? `predicted ${seconds(p.step)} on ${p.cluster}` : "not simulated", off),
        card("memory of the rank that needs most", p.peak_was ? bytes(p.peak_was) : "–", `predicted ${bytes(p.peak)}`), card("MFU", share(p.mfu_was), p.step ? `predicted ${share(p.mfu)}` : ""), card("data wait", share(p.wait_was), "measured"), card("schedule", p.schedule, `${p.ranks.length} ranks`)),
        p.why ? el("p", { class: "quiet" }, p.why) : "",
        panel("Memory of each rank: predicted above, held at the newest look below", el("div", { class: "legend" }, ...parts.map(([, c, t]) => el("span", {}, el("i", { css: { background: `var(${c})` } }), t)), el("span", {}, el("i", { css: { background: "var(--dim)" } }), "held")),
          el("div", { class: "scroll" }, table(["rank", "blocks", "predicted", "held", ""], p.ranks.map((r) => [r.name, r.blocks, bytes(r.total), r.held ? bytes(r.held) : "–", el("div", {}, bar(r), el("br", {}), held(r))]), [2, 3]))), ...others, panel("Settings that the run was given", settings));
    } catch (e) { root.replaceChildren(panel("Plan", failed(e)), ...others, panel("Settings that the run was given", settings)); }
  }
  unmount() {}
}

// Answers are what a run of reinforcement learning drew lately, with rewards, by text and reward.
export class Answers {
  constructor(app) { this.app = app; this.text = ""; this.order = "newest"; }
  async mount(root) {
    const find = el("input", { type: "search", placeholder: "find in prompts and answers", "aria-label": "find in prompts and answers", value: this.text, oninput: (e) => { this.text = e.target.value.toLowerCase(); this.draw(); } });
    const by = el("select", { "aria-label": "order", onchange: (e) => { this.order = e.target.value; this.draw(); } }, ...["newest", "best", "worst", "longest"].map((o) => el("option", { value: o, selected: o === this.order }, o + " first")));
    const again = el("button", { onclick: () => this.load() }, "look again");
    this.note = el("span", { class: "quiet" });
    this.body = el("div", { class: "panel" });
    root.replaceChildren(el("div", { class: "bar" }, find, by, again, this.note), this.body);
    await this.load();
  }
  unmount() { this.body = null; }
  async load() {
    try { this.list = await ask(`/api/runs/${this.app.main}/answers?most=1000`); this.draw(); } catch (e) { this.body?.replaceChildren(failed(e)); }
  }
  draw() {
    if (!this.body || !this.list) return;
    const worth = (a) => a.reward ?? -Infinity;
    const order = { newest: () => 0, best: (a, b) => worth(b) - worth(a), worst: (a, b) => worth(a) - worth(b), longest: (a, b) => b.tokens - a.tokens }[this.order];
    const rows = this.list.filter((a) => !this.text || (a.asked + "\n" + a.text).toLowerCase().includes(this.text)).sort(order);
    const mean = rows.filter((a) => a.reward !== null);
    this.note.textContent = `${rows.length} of the newest ${this.list.length}${mean.length ? `, mean reward ${si(mean.reduce((s, a) => s + a.reward, 0) / mean.length)}` : ""}`;
    this.body.replaceChildren(table(["step", "prompt", "answer", "reward", "tokens", ""], rows.slice(0, 200).map((a) => [String(a.step), el("pre", {}, a.asked), el("pre", {}, a.text), a.reward === null ? "–" : si(a.reward), String(a.tokens),
      el("span", {}, a.end === "length" ? el("span", { class: "tag warn", title: "the answer was cut at its longest" }, "cut") : "", a.suspect ? el("span", { class: "tag error" }, "suspect") : "", a.fault ? el("span", { class: "tag error", title: a.fault }, "fault") : "")]), [0, 3, 4]));
  }
}

// Samples are what a run has shown behind its evaluations: answers, pictures, clips, and curves that were predicted beside those
// that were recorded. What a file is follows from its ending.
export class Samples {
  constructor(app) { this.app = app; this.prompt = ""; this.plots = []; }
  async mount(root) {
    this.pick = el("select", { "aria-label": "prompt", onchange: (e) => { this.prompt = e.target.value; this.draw(); } });
    this.body = el("div", {});
    root.replaceChildren(el("div", { class: "bar" }, this.pick, el("button", { onclick: () => this.load() }, "look again"), el("span", { class: "quiet" }, "by step, the newest first; each prompt begins with the same noise every time")), this.body);
    await this.load();
  }
  unmount() { this.body = null; this.clear(); }
  clear() { this.plots.forEach((u) => u.destroy()); this.plots = []; }
  theme() { this.draw(); }
  async load() {
    try {
      const d = await ask(`/api/runs/${this.app.main}/events?most=20000`), steps = new Map();
      for (const e of d.events) if (e.kind === "answer") {
        if (!steps.has(e.step)) steps.set(e.step, new Map());
        const at = e.text.indexOf('" → "'), prompt = at < 0 ? e.text : e.text.slice(1, at);
        steps.get(e.step).set(prompt, { prompt, answer: at < 0 ? "" : e.text.slice(at + 5, -1), file: e.file }); // a step that was taken again says so last
      }
      this.steps = [...steps].sort((a, b) => b[0] - a[0]);
      const prompts = [...new Set(this.steps.flatMap(([, of]) => [...of.keys()]))];
      this.pick.replaceChildren(el("option", { value: "" }, "all prompts"), ...prompts.map((p) => el("option", { value: p, selected: p === this.prompt }, p)));
      this.draw();
    } catch (e) { this.body?.replaceChildren(failed(e)); }
  }
  draw() {
    if (!this.body || !this.steps) return;
    this.clear();
    this.body.replaceChildren(...this.steps.slice(0, 20).map(([step, of]) => panel(`step ${step}`, el("div", { class: "samples" }, ...[...of.values()].filter((a) => !this.prompt || a.prompt === this.prompt).map((a) => this.one(a))))));
    if (!this.steps.length) this.body.replaceChildren(el("p", { class: "quiet" }, "No evaluation yet."));
  }
  one(a) {
    const at = a.file && `/runs/${this.app.main}/shown/${encodeURIComponent(a.file)}`, curves = el("div", { class: "follow" });
    if (a.file?.endsWith(".json")) this.follow(curves, at);
    return el("figure", { class: a.file?.endsWith(".json") ? "wide" : null }, !at ? "" : a.file.endsWith(".json") ? curves : el("img", { src: at, alt: a.prompt, loading: "lazy" }),
      el("figcaption", {}, el("b", {}, a.prompt), a.answer.trim() ? el("pre", {}, a.answer.replaceAll("\\n", "\n").replaceAll('\\"', '"')) : at ? "" : el("pre", { class: "quiet" }, "nothing")));
  }
  // follow draws each number of an episode: what was recorded, and what was predicted.
  async follow(box, at) {
    try {
      const d = await ask(at);
      box.append(el("div", { class: "legend" }, el("span", {}, el("i", { css: { background: colours[0] } }), "recorded"), el("span", {}, el("i", { css: { background: colours[1] } }), "predicted")));
      for (let k = 0; k < (d.recorded[0]?.length ?? 0); k++) {
        const one = el("div", { role: "img", "aria-label": `number ${k} of the actions` }), ink = css("--dim"), grid = { stroke: css("--grid"), width: 1 };
        box.append(el("div", {}, el("small", { class: "quiet" }, `number ${k}`), one));
        const axis = { stroke: ink, grid, ticks: grid, font: "11px system-ui" };
        this.plots.push(new uPlot({ width: Math.max(160, Math.min(320, box.clientWidth)), height: 130, legend: { show: false }, cursor: { show: false }, scales: { x: { time: false } },
          axes: [{ ...axis, size: 24 }, { ...axis, size: 58, values: (u, vs) => vs.map((v) => si(v)) }],
          series: [{}, { stroke: colours[0], width: 1.5, points: { show: false } }, { stroke: colours[1], width: 1.5, dash: [5, 3], points: { show: false } }] },
        [d.frames, d.recorded.map((v) => v[k]), d.predicted.map((v) => v[k])], one));
      }
    } catch (e) { box.append(failed(e)); }
  }
}
