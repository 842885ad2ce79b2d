// The graph of actors as it runs: who computes, who waits for whom, what went over each edge, memory, and lfactor why.
import { el, svg, ask, css, si, bytes, seconds, share, table, panel, tip, failed } from "/page/lib.js";
import { shape } from "/page/timeline.js";

const looks = 30; // that shares are taken over
const small = 64; // ranks up to which boxes are drawn
const pools = /^(sampler|judge|environment)\d+$/; // members of pools, which stand in a column of their own
const state = { busy: "--busy", wait: "--wait", idle: "--idle", stuck: "--stuck" };

// place puts ranks in a grid: a column a pipeline stage, where there are stages, and a row for what else tells ranks apart.
function place(nodes) {
  const ranks = nodes.map((n, i) => ({ n, i })).filter((x) => x.n.name.startsWith("rank"));
  const axis = (w, name) => { const m = w.match(new RegExp(`(?:^| )${name} (\\d+)`)); return m ? +m[1] : 0; };
  const pps = new Set(ranks.map((x) => axis(x.n.where, "pp")));
  const rows = new Map(), at = new Map(), fill = new Map();
  const cols = pps.size > 1 ? pps.size : Math.min(8, ranks.length) || 1;
  ranks.forEach((x, k) => {
    let col = k % cols, row = Math.floor(k / cols);
    if (pps.size > 1) {
      col = axis(x.n.where, "pp");
      const rest = x.n.where.replace(/(^| )pp \d+/, "").trim();
      if (!rows.has(rest)) rows.set(rest, rows.size);
      row = rows.get(rest);
      const key = col + "/" + row;
      if (fill.has(key)) { row = rows.size + (fill.get(key)); fill.set(key, fill.get(key) + 1); } else fill.set(key, 0);
    }
    at.set(x.i, [col, row]);
  });
  // axes along which ranks differ are named
  const axes = new Map();
  for (const x of ranks) for (const [, name, v] of x.n.where.matchAll(/([a-z_]+) (\d+)/g)) axes.set(name, (axes.get(name) ?? new Set()).add(v));
  const short = (w) => w.replace(/([a-z_]+) (\d+) ?/g, (m, name) => axes.get(name)?.size > 1 ? m : "").trim();
  return { ranks, at, short, cols, rows: Math.max(1, ...[...at.values()].map((p) => p[1] + 1)), staged: pps.size > 1 };
}

export class Graph {
  constructor(app) { this.app = app; this.history = []; this.before = null; this.rates = new Map(); }
  mount(root) {
    this.head = el("div", { class: "bar" });
    this.view = el("div", {});
    this.edges = el("div", { class: "scroll" });
    const item = (v, t) => el("span", {}, el("i", { css: { background: `var(${v})` } }), t);
    root.replaceChildren(this.head, panel(null, el("div", { class: "legend" }, item("--busy", "at work"), item("--wait", "waits for another actor"), item("--idle", "idle"), item("--stuck", "does not answer"),
      this.bars = el("span", {})), this.view), panel("Edges", this.edges));
    this.history = []; this.before = null; this.past = null; this.rates.clear();
    this.head.replaceChildren(el("span", { class: "quiet" }, "Asking the run's actors…"));
  }
  unmount() { this.past = null; }
  theme() { if (this.past?.data) this.moment(); else if (this.last) this.update(this.last); }
  update(g) {
    if (!this.view) return;
    this.last = g;
    if (!g.running) { this.replay(); return; }
    this.past = null;
    this.history.push(g.nodes.map((n) => n.state));
    if (this.history.length > looks) this.history.shift();
    const now = performance.now() / 1e3;
    if (this.before) for (const e of g.edges) {
      const old = this.before.get(`${e.from}-${e.to}`), dt = now - this.when;
      if (old && dt > .2) this.rates.set(`${e.from}-${e.to}`, [(e.messages - old[0]) / dt, (e.bytes - old[1]) / dt]);
    }
    this.before = new Map(g.edges.map((e) => [`${e.from}-${e.to}`, [e.messages, e.bytes]])); this.when = now;
    const p = place(g.nodes), count = (s) => g.nodes.filter((n) => n.state === s && n.name.startsWith("rank")).length;
    this.head.replaceChildren(el("b", {}, `${p.ranks.length} ranks`), el("span", {}, `${count("busy")} at work`), el("span", {}, `${count("wait")} wait`), el("span", {}, `${count("stuck")} do not answer`), ...["sampler", "judge", "environment"].flatMap((kind) => {
        const of = g.nodes.filter((n) => n.name.startsWith(kind) && pools.test(n.name)), silent = of.filter((n) => n.state === "stuck").length;
        return of.length ? [el("span", {}, `${of.length} ${kind}${of.length > 1 ? "s" : ""}${silent ? `, ${silent} silent` : ""}`)] : [];
      }), el("span", { class: "quiet" }, `root: ${g.root}`));
    this.bars.textContent = p.ranks.length <= small ? "bars: shares of the last 30 looks, and memory beside the fullest rank's" : "the stronger, the more of the last 30 looks it was so";
    if (p.ranks.length <= small) this.boxes(g, p); else this.tiles(g, p);
    this.list(g);
  }
  // replay shows the last step of a run that is over, or of a simulation, at a moment that a slider chooses.
  async replay() {
    if (this.past) return;
    this.past = { at: 0 };
    const p = this.past;
    try { p.data = await ask(`/api/runs/${this.app.main}/jobs?steps=1`); } catch (e) { this.head.replaceChildren(failed(e)); this.view.replaceChildren(); this.edges.replaceChildren(); return; }
    if (this.past !== p || !p.data.jobs.length) { if (this.past === p) this.head.replaceChildren(el("span", { class: "quiet" }, "No run is under way in this folder, and its trace has no step.")); return; }
    p.own = shape(p.data);
    p.ranks = p.own.order.filter((a) => p.data.actors[a].startsWith("rank"));
    p.jobs = p.data.actors.map(() => []); // by actor, in order of time
    p.data.jobs.forEach((j, i) => p.jobs[j[0]].push([j[1], j[1] + j[2], j[3], p.data.kinds[i]]));
    p.jobs.forEach((l) => l.sort((x, y) => x[0] - y[0]));
    p.slider = el("input", { type: "range", min: 0, max: 1000, value: 500, "aria-label": "moment of the step", css: { width: "min(480px, 50vw)" }, oninput: (e) => { p.at = e.target.value / 1000 * p.own.end; this.moment(); } });
    p.out = el("output", {});
    p.play = el("button", { onclick: () => { p.playing = !p.playing; p.play.textContent = p.playing ? "stop" : "play"; if (p.playing) this.tick(); } }, "play");
    this.head.replaceChildren(p.play, p.slider, p.out);
    this.edges.replaceChildren(el("p", { class: "quiet" }, "What went over edges is known while a run is under way."));
    p.at = p.own.end / 2;
    this.moment();
  }
  tick() {
    const p = this.past;
    if (!p?.playing || !p.slider.isConnected) return;
    p.at = (p.at + p.own.end / 300) % p.own.end; p.slider.value = 1000 * p.at / p.own.end;
    this.moment();
    setTimeout(() => this.tick(), 66);
  }
  // moment draws who is at work at the slider's time; bars are the shares of the step until then.
  moment() {
    const p = this.past, nodes = p.ranks.map((a) => {
      let busy = 0, now = null, next = null;
      for (const [from, to, name, kind] of p.jobs[a]) {
        if (from > p.at) { next = name; break; }
        busy += Math.min(to, p.at) - from;
        if (to > p.at) now = [name, kind, p.at - from];
      }
      const n = p.jobs[a].filter((j) => j[1] <= p.at), idle = n.length ? p.at - n[n.length - 1][1] : p.at;
      return { name: p.data.actors[a], where: p.data.places[a], state: now ? "busy" : next ? "wait" : "idle", what: now ? now[0] : next ? "its turn for " + next : "", for: -1, age: now ? now[2] : idle, memory: 0, busy: p.at > 0 ? busy / p.at : 0 };
    });
    const g = { nodes, edges: [], chain: [], all: 0, root: "" }, count = (s) => nodes.filter((n) => n.state === s).length;
    this.history = Array.from({ length: 20 }, (_, k) => nodes.map((n) => (k + .5) / 20 < n.busy ? "busy" : "wait"));
    p.out.textContent = `${seconds(p.at)} of ${seconds(p.own.end)}: ${count("busy")} of ${nodes.length} at work, ${count("wait")} wait`;
    const q = place(nodes);
    this.bars.textContent = nodes.length <= small ? "bars: shares of the step until this moment" : "the stronger, the more of the step until this moment it was so";
    if (nodes.length <= small) this.boxes(g, q); else this.tiles(g, q);
  }
  shares(i) {
    const c = { busy: 0, wait: 0, idle: 0, stuck: 0 };
    for (const h of this.history) c[h[i]]++;
    return c;
  }
  about(g, i) {
    const n = g.nodes[i], c = this.shares(i), of = this.history.length;
    return `${n.name}${n.where ? " (" + n.where + ")" : ""}\n${n.state}${n.what ? ": " + n.what : ""}${n.for >= 0 ? " of " + g.nodes[n.for].name : ""}, for ${seconds(n.age)}\n` +
      `at work ${share(c.busy / of)}, waiting ${share(c.wait / of)} of the last ${of} looks\n${n.memory ? bytes(n.memory) + (n.budget ? " of " + bytes(n.budget) : "") : ""}`;
  }
  boxes(g, p) {
    const w = 150, h = 62, gx = 70, gy = 34, left = 150, top = 66;
    const root = svg("svg", { class: "graph", role: "img", "aria-label": `Graph of ${g.nodes.length} actors; ${g.root}` });
    const xy = new Map(), others = g.nodes.map((n, i) => ({ n, i })).filter((x) => !p.at.has(x.i) && x.n.name !== "observer");
    p.at.forEach(([c, r], i) => xy.set(i, [left + c * (w + gx), top + r * (h + gy)]));
    // a loader stands beside the rank that it feeds, at the left of the first stage and at the right of others
    const feeds = new Map();
    for (const e of g.edges) { const to = p.at.get(e.to); if (to && !p.at.has(e.from) && g.nodes[e.from].name !== "coordinator" && !feeds.has(e.from)) feeds.set(e.from, to); }
    const taken = [0, 0];
    let width = left + p.cols * (w + gx), rows = p.rows;
    for (const x of others.filter((x) => !pools.test(x.n.name))) {
      if (x.n.name === "coordinator") { xy.set(x.i, [left + (p.cols * (w + gx) - gx - w) / 2, 8]); continue; }
      const to = feeds.get(x.i), side = to && p.staged && to[0] > 0 ? 1 : 0, row = Math.max(taken[side], to && p.staged ? to[1] : 0);
      taken[side] = row + 1; rows = Math.max(rows, row + 1);
      xy.set(x.i, [side ? left + p.cols * (w + gx) - gx + 56 : 8, top + row * (h + gy)]);
      if (side) width = left + p.cols * (w + gx) - gx + 56 + 126;
    }
    const members = others.filter((x) => pools.test(x.n.name)), beside = Math.max(width, left + p.cols * (w + gx) - gx + 56);
    members.forEach((x, k) => xy.set(x.i, [beside + Math.floor(k / 12) * 136, 8 + k % 12 * 46]));
    if (members.length) { width = beside + Math.ceil(members.length / 12) * 136; rows = Math.max(rows, (Math.min(12, members.length) * 46 - top) / (h + gy)); }
    const height = top + rows * (h + gy) + 8;
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.style.setProperty("max-width", width * 1.15 + "px");
    root.append(svg("defs", {}, svg("marker", { id: "tip-of", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", fill: css("--dim") })),
      svg("marker", { id: "tip-wait", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 9, markerHeight: 9, markerUnits: "userSpaceOnUse", orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", fill: css("--wait") }))));
    const most = Math.max(1, ...[...this.rates.values()].map((r) => r[1]));
    const box = (i) => { const o = g.nodes[i].name.startsWith("rank"); return [o ? w : g.nodes[i].name === "coordinator" ? w : 118, o ? h : 36]; };
    const end = (a, b) => { // the point on a's border towards b
      const [ax, ay] = xy.get(a), [aw, ah] = box(a), [bx, by] = xy.get(b), [bw, bh] = box(b);
      const cx = ax + aw / 2, cy = ay + ah / 2, dx = bx + bw / 2 - cx, dy = by + bh / 2 - cy;
      const k = 1 / Math.max(Math.abs(dx) / (aw / 2), Math.abs(dy) / (ah / 2), 1e-9);
      return [cx + dx * k, cy + dy * k];
    };
    for (const e of g.edges) {
      if (!xy.has(e.from) || !xy.has(e.to)) continue;
      const quiet = g.nodes[e.from].name === "coordinator" || g.nodes[e.to].name === "coordinator";
      if (quiet && p.ranks.length > 16 || !quiet && !e.bytes && !e.held) continue;
      const [x1, y1] = end(e.from, e.to), [x2, y2] = end(e.to, e.from), r = this.rates.get(`${e.from}-${e.to}`) || [0, 0];
      const bend = quiet ? 0 : 10, nx = y2 - y1, ny = x1 - x2, l = Math.hypot(nx, ny) || 1, mx = (x1 + x2) / 2 + nx / l * bend, my = (y1 + y2) / 2 + ny / l * bend;
      // one that would pass behind other boxes of its column goes around them
      const [a, b] = [p.at.get(e.from), p.at.get(e.to)], far = a && b && a[0] === b[0] && Math.abs(a[1] - b[1]) > 1;
      const sx = far ? xy.get(e.from)[0] + w : 0, sy = far ? xy.get(e.from)[1] + h / 2 : 0, ty = far ? xy.get(e.to)[1] + h / 2 : 0, out = far ? sx + 12 + 9 * Math.abs(a[1] - b[1]) : 0;
      const d = far ? `M${sx} ${sy}C${out} ${sy} ${out} ${ty} ${sx} ${ty}` : `M${x1} ${y1}Q${mx} ${my} ${x2} ${y2}`;
      const line = svg("path", { d, fill: "none", stroke: e.held ? css("--stuck") : css("--dim"), "stroke-opacity": quiet ? .18 : .25 + .6 * Math.sqrt(r[1] / most),
        "stroke-width": quiet ? .7 : .8 + 3.2 * Math.sqrt(r[1] / most), "marker-end": quiet ? null : "url(#tip-of)" });
      line.addEventListener("mousemove", (ev) => tip(ev, `${g.nodes[e.from].name} → ${g.nodes[e.to].name}\n${(e.kinds || []).join(", ")}\n${si(r[0])} messages/s, ${bytes(r[1])}/s${e.held ? `\n${e.held} held back: 0 of ${e.credits} credits` : ""}`));
      line.addEventListener("mouseleave", (ev) => tip(ev));
      root.append(line);
    }
    g.nodes.forEach((n, i) => {
      if (n.for < 0 || !xy.has(i) || !xy.has(n.for)) return;
      const [x1, y1] = end(i, n.for), [x2, y2] = end(n.for, i), nx = y2 - y1, ny = x1 - x2, l = Math.hypot(nx, ny) || 1;
      root.append(svg("path", { d: `M${x1} ${y1}Q${(x1 + x2) / 2 - nx / l * 14} ${(y1 + y2) / 2 - ny / l * 14} ${x2} ${y2}`, fill: "none", stroke: css("--wait"), "stroke-width": 1.6, "stroke-dasharray": "5 4", "marker-end": "url(#tip-wait)" }));
    });
    xy.forEach(([x, y], i) => root.append(this.node(g, p, i, x, y, ...box(i))));
    this.view.replaceChildren(root);
  }
  node(g, p, i, x, y, w, h) {
    const n = g.nodes[i], c = css(state[n.state]), rank = h > 40, text = pools.test(n.name) ? { busy: n.what, stuck: n.what?.endsWith("results") ? `silent for ${seconds(n.age)}` : n.what, wait: n.what, idle: n.what || "idle" }[n.state] : n.state === "wait" && n.for >= 0 ? `waits for ${g.nodes[n.for].name}` : n.state === "wait" && n.what.startsWith("its turn") ? "waits" : n.state === "busy" ? "runs " + n.what.replace(/ segment (\d+) of step \d+/, ".$1") : n.state;
    const kids = [svg("rect", { x, y, width: w, height: h, rx: 6, fill: css("--card"), stroke: c, "stroke-width": 2 }), svg("text", { x: x + 9, y: y + 16, "font-weight": 600 }, n.name),
      svg("text", { x: x + w - 9, y: y + 16, class: "dim", "text-anchor": "end" }, rank ? p.short(n.where) : ""), svg("text", { x: x + 9, y: y + 30, class: "dim" }, text.length > w / 6.7 ? text.slice(0, w / 6.7 - 1) + "…" : text)];
    if (rank) {
      const s = this.shares(i), of = Math.max(1, this.history.length);
      let at = x + 9;
      for (const k of ["busy", "wait", "idle", "stuck"]) {
        const part = (w - 18) * s[k] / of;
        if (part > 0) kids.push(svg("rect", { x: at, y: y + 38, width: part, height: 6, fill: css(state[k]) }));
        at += part;
      }
      const most = Math.max(1, ...g.nodes.map((m) => m.memory || 0));
      if (g.nodes.some((m) => m.memory)) kids.push(svg("rect", { x: x + 9, y: y + 49, width: w - 18, height: 4, rx: 2, fill: css("--soft") }), svg("rect", { x: x + 9, y: y + 49, width: (w - 18) * Math.min(1, (n.memory || 0) / most), height: 4, rx: 2, fill: css("--accent") }));
    }
    const e = svg("g", { tabindex: 0, role: "img", "aria-label": this.about(g, i) }, ...kids);
    e.addEventListener("mousemove", (ev) => tip(ev, this.about(g, i)));
    e.addEventListener("mouseleave", (ev) => tip(ev));
    return e;
  }
  // tiles draw many ranks: a square each, coloured by what it does now, darker the more it was at work lately.
  tiles(g, p) {
    // stages lie along the shorter side; what is wider than the window goes on below, band by band
    const wide = this.view.clientWidth || 900, turned = p.staged && p.rows > p.cols, long = turned ? p.rows : p.cols, short = turned ? p.cols : p.rows;
    const band = Math.min(long, Math.max(16, Math.floor((wide - 60) / 14))), high = short + 1;
    const cols = p.staged ? band : Math.ceil(Math.sqrt(p.ranks.length * 2.2)), rows = p.staged ? Math.ceil(long / band) * high - 1 : Math.ceil(p.ranks.length / cols);
    const spot = (i, k) => {
      if (!p.staged) return [k % cols, Math.floor(k / cols)];
      const [c, r] = p.at.get(i), [far, near] = turned ? [r, c] : [c, r];
      return [far % band, Math.floor(far / band) * high + near];
    };
    const cell = Math.max(7, Math.min(30, Math.floor((wide - 60) / cols)));
    const ratio = devicePixelRatio || 1, c = el("canvas", { role: "img", "aria-label": `${p.ranks.length} ranks; ${g.root}` });
    const left = 44, top = 26;
    c.width = (left + cols * cell + 4) * ratio; c.height = (top + rows * cell + 4) * ratio;
    c.style.setProperty("width", c.width / ratio + "px"); c.style.setProperty("height", c.height / ratio + "px");
    const x = c.getContext("2d"), where = new Map();
    x.scale(ratio, ratio); x.font = "10px system-ui"; x.fillStyle = css("--dim");
    const of = Math.max(1, this.history.length), tone = Object.fromEntries(Object.entries(state).map(([k, v]) => [k, css(v)]));
    x.fillText(turned ? "stage ↓, ranks of each stage →" : p.staged ? "stage →" : "rank →", left, 10);
    for (let k = 0; k < cols; k += Math.max(1, Math.round(34 / cell))) x.fillText(String(k), left + k * cell, 22);
    for (let k = 0; k < rows; k += Math.max(1, Math.round(18 / cell))) if (!p.staged || rows < high) x.fillText(p.staged ? String(k) : String(k * cols), 4, top + k * cell + cell * .7);
    if (p.staged && rows > high) for (let b = 0; b * high < rows; b++) x.fillText("+" + b * band, 4, top + b * high * cell + cell * .7);
    p.ranks.forEach(({ n, i }, k) => {
      const [a, b] = spot(i, k), s = this.shares(i);
      where.set(a + "/" + b, i);
      x.globalAlpha = .35 + .65 * (n.state === "busy" ? s.busy : n.state === "wait" ? s.wait : of) / of;
      x.fillStyle = tone[n.state]; x.fillRect(left + a * cell, top + b * cell, cell - 1, cell - 1);
    });
    x.globalAlpha = 1; x.strokeStyle = css("--stuck"); x.lineWidth = 2;
    for (const l of g.chain) { // the chain to the root
      const k = p.ranks.findIndex((r) => r.i === l.node);
      if (k < 0) continue;
      const [a, b] = spot(l.node, k);
      x.strokeRect(left + a * cell, top + b * cell, cell - 1, cell - 1);
    }
    c.addEventListener("mousemove", (e) => {
      const r = c.getBoundingClientRect(), i = where.get(Math.floor((e.clientX - r.left - left) / cell) + "/" + Math.floor((e.clientY - r.top - top) / cell));
      tip(e, i === undefined ? "" : this.about(g, i));
    });
    c.addEventListener("mouseleave", (e) => tip(e));
    this.view.replaceChildren(c);
  }
  list(g) {
    const rows = g.edges.map((e) => ({ e, r: this.rates.get(`${e.from}-${e.to}`) || [0, 0] })).sort((a, b) => (b.e.held || 0) - (a.e.held || 0) || b.r[1] - a.r[1] || b.r[0] - a.r[0]).slice(0, 60);
    this.edges.replaceChildren(table(["edge", "messages", "a second", "bytes a second", "so far", "way", "credits"], rows.map(({ e, r }) => [`${g.nodes[e.from].name} → ${g.nodes[e.to].name}`, (e.kinds || []).join(", "), si(r[0]), bytes(r[1]), bytes(e.bytes), e.way,
      e.held ? el("span", { class: "tag error" }, `0 of ${e.credits}, ${e.held} held`) : "free"]), [2, 3, 4]),
      g.all > rows.length ? el("p", { class: "quiet" }, `${rows.length} of ${g.all} edges: those that most goes over`) : "");
  }
}

export class Why {
  mount(root) {
    this.box = el("div", {}, el("p", { class: "quiet" }, "Asking the run's actors…"));
    root.replaceChildren(panel("What the run waits for, from the coordinator to the root", this.box));
  }
  unmount() {}
  update(g) {
    if (!this.box) return;
    if (!g.running) { this.box.replaceChildren(el("p", { class: "quiet" }, "No run is under way in this folder: nothing waits.")); return; }
    const kids = [];
    const most = 12, cut = g.chain.length > 2 * most;
    g.chain.forEach((l, k) => {
      if (cut && k === most) kids.push(el("div", { class: "arrow" }, `↓ ${g.chain.length - 2 * most} more, each waiting for the next`));
      if (cut && k >= most && k < g.chain.length - most) return;
      const n = g.nodes[l.node], last = k === g.chain.length - 1;
      if (k) kids.push(el("div", { class: "arrow", "aria-hidden": "true" }, "↓ waits for"));
      kids.push(el("div", { class: "step" + (last ? n.state === "busy" ? " busy" : " root" : "") }, el("b", {}, n.name), n.where ? ` (${n.where})` : "", el("div", { class: "quiet" }, l.text.replace(/^[^:]*: /, ""))));
    });
    const silent = (g.silent || []).map((s) => `process ${s.proc}${s.pid ? ` (pid ${s.pid})` : ""} ${s.state || "does not answer"}`);
    this.box.replaceChildren(el("p", {}, el("span", { class: "tag " + (g.kind === "busy" ? "ok" : g.kind === "none" ? "" : "error") }, g.kind), " ", el("b", {}, g.root)), el("div", { class: "chain" }, ...kids),
      silent.length ? el("p", { class: "quiet" }, silent.join("; ")) : "");
  }
}
