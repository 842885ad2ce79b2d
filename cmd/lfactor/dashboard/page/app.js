// The frame: runs, pages, keys, and the stream of what is new.
import { el, $, ask, colours, si, seconds, failed } from "/page/lib.js";
import { Curves } from "/page/curves.js";
import { Graph, Why } from "/page/graph.js";
import { Timeline } from "/page/timeline.js";
import { Events, Data, Checkpoints, Plan, Answers } from "/page/panels.js";
import { Actors } from "/page/logs.js";
import { Cluster } from "/page/cluster.js";

const app = { runs: [], find: [], shown: [], main: 0, admin: false, run: (id) => app.runs.find((r) => r.id === id) };
const pages = [["curves", "Curves", new Curves(app)], ["graph", "Graph", new Graph(app)], ["timeline", "Timeline", new Timeline(app)], ["why", "Why", new Why()], ["events", "Events", new Events(app)], ["data", "Data", new Data(app)], ["checkpoints", "Checkpoints", new Checkpoints(app)], ["plan", "Plan", new Plan(app)], ["actors", "Actors", new Actors(app)], ["cluster", "Cluster", new Cluster(app, async (id) => { if (!app.run(id)) await refresh(); choose(id, "curves"); })],
  ["answers", "Answers", new Answers(app)]]; // the last has no key
let page = null, source = null;

function theme(to) {
  document.documentElement.dataset.theme = to;
  localStorage.setItem("theme", to);
  page?.[2].theme?.();
}
theme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

const tab = (name) => $("tabs").querySelector(`[data-page=${name}]`);

function open(name, keep) {
  const next = pages.find((p) => p[0] === name && (app.cluster || name !== "cluster") && (app.run(app.main)?.draws || name !== "answers")) || pages[app.cluster && !app.runs.length ? 9 : 0];
  page?.[2].unmount();
  page = next;
  if (!keep) history.replaceState(null, "", "#" + next[0]);
  tab("answers").hidden = !app.run(app.main)?.draws;
  for (const b of $("tabs").children) b.setAttribute("aria-selected", String(b.dataset.page === next[0]));
  const root = el("div", { role: "tabpanel", "aria-label": next[1] });
  $("main").replaceChildren(root);
  next[2].mount(root);
  listen();
}

// found are the runs that the text above the list finds: each word is part of a name, model, plan or state.
const found = (r) => app.find.every((w) => `${r.name} ${r.model} ${r.plan} ${r.state}`.toLowerCase().includes(w));

function sidebar() {
  $("find").hidden = app.runs.length < 2;
  $("runs").replaceChildren(...app.runs.filter(found).map((r) => {
    const box = el("input", { type: "checkbox", checked: app.shown.includes(r.id), "aria-label": `compare ${r.name}`, onclick: (e) => e.stopPropagation(), onchange: (e) => {
      app.shown = e.target.checked ? [...app.shown, r.id].sort((a, b) => a - b) : app.shown.filter((x) => x !== r.id);
      open(page[0]);
    } });
    const node = el("div", { class: "run" + (r.id === app.main ? " main" : ""), tabindex: 0, role: "button", "aria-pressed": String(r.id === app.main), onclick: () => choose(r.id), onkeydown: (e) => { if (e.key === "Enter") choose(r.id); } },
      el("div", { class: "name" }, app.runs.length > 1 ? box : "", el("span", { class: "swatch", css: { background: colours[r.id % colours.length] } }), r.name),
      el("small", { title: r.why || "" }, r.simulated ? "a step in virtual time" : `${r.state || (r.running ? "running" : "not running")} · step ${r.step}${r.steps ? " of " + r.steps : ""}`), el("small", {}, r.loss ? `loss ${si(r.loss)}` : ""), el("small", { title: r.plan }, r.model),
      r.steps ? el("progress", { max: r.steps, value: Math.min(r.step, r.steps), "aria-label": "steps done" }) : "", r.why ? el("small", { class: "why" }, r.why) : "", r.wrong ? el("small", {}, r.wrong) : "");
    if (app.admin && r.running) node.append(el("button", { onclick: async (e) => {
      e.stopPropagation();
      if (!confirm(`Stop ${r.name}? It saves its state after the step under way.`)) return;
      try { await ask(`/api/runs/${r.id}/stop`, { method: "POST" }); } catch (err) { alert(err.message); }
    } }, "stop"));
    return node;
  }));
}
function choose(id, to) {
  app.main = id;
  if (!app.shown.includes(id)) app.shown = [...app.shown, id].sort((a, b) => a - b);
  sidebar(); open(to || page[0]);
}

function listen() {
  source?.close();
  const graph = ["graph", "why"].includes(page[0]) ? `&graph=${app.main}` : page[0] === "actors" ? `&logs=${app.main}` : page[0] === "cluster" ? "&cluster=1" : "";
  source = new EventSource(`/api/stream?runs=${[...new Set([...app.shown, app.main])].join(",")}${graph}`);
  const on = (name, f) => source.addEventListener(name, (e) => f(JSON.parse(e.data)));
  source.onopen = () => state("on", "live");
  source.onerror = () => state("off", "not connected");
  on("state", (d) => { const r = app.run(d.run); if (r && r.running !== d.running) { r.running = d.running; sidebar(); } });
  on("points", (d) => {
    const r = app.run(d.run), n = d.of.step.length - 1;
    if (r) { r.step = d.of.step[n]; r.loss = d.of.loss[n]; soon(); }
    pages[0][2].more(d.run, d.of);
  });
  on("again", (d) => pages[0][2].again(d.run));
  on("evals", (d) => pages[0][2].evals(d.run, d.evals));
  on("events", (d) => { if (d.run === app.main && page[0] === "events") page[2].more(d.events); });
  on("graph", (d) => page[2].update?.(d));
  on("cluster", (d) => page[2].cluster?.(d));
  on("logs", (d) => page[2].heard?.(d));
}
let waiting = null;
function soon() { waiting ??= setTimeout(() => { waiting = null; sidebar(); }, 1000); }
function state(cls, text) { const l = $("live"); if (l.textContent !== text) l.textContent = text; l.className = cls; }

const keys = [["1 … 9, 0", "pages"], ["j k", "next, previous run"], ["r", "all steps"], ["t", "light or dark"], ["?", "these keys"], ["Esc", "close"]];
$("keys").append(el("h3", {}, "Keys"), el("table", {}, el("tbody", {}, ...keys.map(([k, t]) => el("tr", {}, el("td", {}, el("kbd", {}, k)), el("td", {}, t))))));
document.addEventListener("keydown", (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || ["INPUT", "SELECT", "TEXTAREA"].includes(e.target.tagName) && e.target.type !== "checkbox" && e.target.type !== "range") return;
  const n = e.key === "0" ? 10 : +e.key;
  if (n >= 1 && n <= 10 && (n < 10 || app.cluster)) open(pages[n - 1][0]);
  else if (e.key === "t") $("theme").click();
  else if (e.key === "r") pages[0][2].reset?.();
  else if (e.key === "?") $("keys").showModal();
  else if (e.key === "j" || e.key === "k") choose((app.main + (e.key === "j" ? 1 : app.runs.length - 1)) % app.runs.length);
});
$("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
$("find").addEventListener("input", (e) => { app.find = e.target.value.toLowerCase().split(/\s+/); sidebar(); });
$("help").addEventListener("click", () => $("keys").showModal());
$("tabs").append(...pages.map(([name, title], i) => el("button", { role: "tab", "data-page": name, "aria-selected": "false", title: i < 10 ? `${title} (${(i + 1) % 10})` : title, hidden: name === "cluster" || name === "answers", onclick: () => open(name) }, title)));

async function refresh() {
  const d = await ask("/api/runs");
  app.runs = d.runs; app.admin = d.admin; app.cluster = d.cluster;
  tab("cluster").hidden = !app.cluster;
  tab("answers").hidden = !app.run(app.main)?.draws;
  sidebar();
}
try {
  await refresh();
  if (app.cluster) app.main = (app.runs.findLast((r) => r.running) || app.runs.at(-1))?.id ?? 0;
  app.shown = app.cluster ? app.runs.slice(app.main, app.main + 1).map((r) => r.id) : app.runs.slice(0, 8).map((r) => r.id);
  sidebar();
  open(location.hash.slice(1) || (app.cluster ? "cluster" : app.runs[0]?.simulated ? "timeline" : "curves"), true);
  setInterval(() => refresh().catch(() => {}), 10000);
} catch (e) { $("main").replaceChildren(failed(e)); }
