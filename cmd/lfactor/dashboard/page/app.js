// The frame: runs, pages, keys, and the stream of what is new.
import { el, $, ask, colours, si, seconds, failed } from "/page/lib.js";
import { Curves } from "/page/curves.js";
import { Graph, Why } from "/page/graph.js";
import { Timeline } from "/page/timeline.js";
import { Events, Data, Checkpoints, Plan, Answers, Samples } from "/page/panels.js";
import { Job } from "/page/job.js";
import { Actors } from "/page/logs.js";
import { Cluster } from "/page/cluster.js";

const app = { runs: [], find: [], gone: new Set(), group: "", shown: [], main: 0, admin: false, run: (id) => app.runs.find((r) => r.id === id) };
const pages = [["curves", "Curves", new Curves(app)], ["graph", "Graph", new Graph(app)], ["timeline", "Timeline", new Timeline(app)], ["why", "Why", new Why()], ["events", "Events", new Events(app)], ["data", "Data", new Data(app)], ["checkpoints", "Checkpoints", new Checkpoints(app)], ["plan", "Plan", new Plan(app)], ["actors", "Actors", new Actors(app)], ["cluster", "Cluster", new Cluster(app, async (id) => { if (!app.run(id)) await refresh(); choose(id, "curves"); })],
  ["answers", "Answers", new Answers(app)], ["samples", "Samples", new Samples(app)], ["job", "Data job", new Job(app)]]; // the last three have no key
// some are the pages that a run has only where it has what they show.
const some = { answers: (r) => r?.draws, samples: (r) => r?.shows, job: (r) => r?.data };
let page = null, source = null;

function theme(to) {
  document.documentElement.dataset.theme = to;
  localStorage.setItem("theme", to);
  page?.[2].theme?.();
}
theme(localStorage.getItem("theme") || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));

const tab = (name) => $("tabs").querySelector(`[data-page=${name}]`);

function open(name, keep) {
  const next = pages.find((p) => p[0] === name && (app.cluster || name !== "cluster") && (!some[name] || some[name](app.run(app.main)))) || pages[app.cluster && !app.runs.length ? 9 : 0];
  page?.[2].unmount();
  page = next;
  if (!keep) history.replaceState(null, "", "#" + next[0]);
  for (const n in some) tab(n).hidden = !some[n](app.run(app.main));
  for (const b of $("tabs").children) b.setAttribute("aria-selected", String(b.dataset.page === next[0]));
  tab(next[0]).scrollIntoView({ block: "nearest", inline: "nearest" });
  const root = el("div", { role: "tabpanel", "aria-label": next[1] });
  $("main").replaceChildren(root);
  next[2].mount(root);
  listen();
}

// found are the runs that the text above the list finds: each word is part of a name, model, plan or state.
// Archived ones are there when the text says "archived".
const named = (r) => r.marks?.name || r.name;
const found = (r) => app.find.every((w) => `${named(r)} ${r.name} ${r.model} ${r.plan} ${r.state} ${(r.marks?.tags || []).join(" ")} ${r.marks?.note || ""} ${r.marks?.archived ? "archived" : ""}`.toLowerCase().includes(w)) && (!r.marks?.archived || app.find.includes("archived")) && !app.gone.has(r.id);
// groups are what runs are put together by; pinned ones stand first, and are remembered by this browser.
const groups = { "": () => "", state: (r) => r.state || (r.running ? "running" : "not running"), model: (r) => r.model || "no model yet", tag: (r) => r.marks?.tags?.[0] || "no tag", plan: (r) => r.plan || "no plan yet" };
const pins = () => JSON.parse(localStorage.getItem("pins") || "[]");
function pin(r) {
  localStorage.setItem("pins", JSON.stringify(pins().includes(r.dir) ? pins().filter((d) => d !== r.dir) : [...pins(), r.dir]));
  sidebar();
}
// marking asks for what is to be said of a run, and writes it.
function marking(r) {
  const m = r.marks || {}, name = el("input", { value: m.name || "", maxlength: 100, placeholder: r.name }), tags = el("input", { value: (m.tags || []).join(" "), placeholder: "tags, with blanks between" });
  const note = el("textarea", { rows: 4, maxlength: 10000 }), archived = el("input", { type: "checkbox", checked: !!m.archived }), wrong = el("small", { class: "why" });
  note.value = m.note || "";
  const d = $("mark"), post = async (to, body) => {
    try { await ask(`/api/runs/${r.id}/${to}`, { method: "POST", body: JSON.stringify(body) }); d.close(); await refresh(); } catch (e) { wrong.textContent = e.message; }
  };
  d.replaceChildren(el("h3", {}, r.name), el("label", {}, "name", name), el("label", {}, "tags", tags), el("label", {}, "note", note), el("label", { class: "row" }, archived, "archived"), wrong,
    el("div", { class: "bar" }, el("button", { onclick: () => post("marks", { name: name.value.trim(), tags: tags.value.split(/\s+/).filter(Boolean), note: note.value, archived: archived.checked }) }, "keep"), el("button", { onclick: () => d.close() }, "cancel"), el("span", { class: "grow" }),
      el("button", { onclick: async () => { if (confirm(`Remove the records of ${named(r)}? Checkpoints stay; there is no way back.`)) { await post("delete", {}); if (!d.open) { app.gone.add(r.id); sidebar(); } } } }, "delete")));
  d.showModal();
}

// starting lists the run files that may be started.
function starting() {
  const d = $("mark"), wrong = el("pre", { class: "why" });
  d.replaceChildren(el("h3", {}, "Start a run"), app.files.length ? "" : el("p", { class: "quiet" }, "The folder has no run file (.yaml)."), ...app.files.map((f) => el("div", { class: "bar" }, el("button", { onclick: async (e) => {
    e.target.disabled = true; wrong.textContent = "";
    try { await ask("/api/start", { method: "POST", body: JSON.stringify({ file: f }) }); d.close(); await refresh(); } catch (err) { wrong.textContent = err.message; }
    e.target.disabled = false;
  } }, "start"), el("span", {}, f))), wrong, el("div", { class: "bar" }, el("button", { onclick: () => d.close() }, "close")));
  d.showModal();
}

function sidebar() {
  $("find").hidden = $("group").hidden = app.runs.length < 2;
  const kept = pins(), by = groups[app.group], place = (r) => kept.includes(r.dir) ? "" : by(r);
  const list = app.runs.filter(found).sort((a, b) => kept.includes(b.dir) - kept.includes(a.dir) || place(a).localeCompare(place(b)) || a.id - b.id);
  $("runs").replaceChildren(...list.flatMap((r, i) => [...(app.group && place(r) && (!i || place(list[i - 1]) !== place(r)) ? [el("h2", {}, place(r))] : []), line(r, kept)]));
}
function line(r, kept) {
    const box = el("input", { type: "checkbox", checked: app.shown.includes(r.id), "aria-label": `compare ${r.name}`, onclick: (e) => e.stopPropagation(), onchange: (e) => {
      app.shown = e.target.checked ? [...app.shown, r.id].sort((a, b) => a - b) : app.shown.filter((x) => x !== r.id);
      open(page[0]);
    } });
    const node = el("div", { class: "run" + (r.id === app.main ? " main" : ""), tabindex: 0, role: "button", "aria-pressed": String(r.id === app.main), onclick: () => choose(r.id), onkeydown: (e) => { if (e.key === "Enter") choose(r.id); } },
      app.runs.length > 1 ? el("button", { class: "pin", "aria-pressed": String(kept.includes(r.dir)), "aria-label": `pin ${named(r)}`, title: "pin: stands first", onclick: (e) => { e.stopPropagation(); pin(r); } }, kept.includes(r.dir) ? "★" : "☆") : "",
      el("div", { class: "name" }, app.runs.length > 1 ? box : "", el("span", { class: "swatch", css: { background: colours[r.id % colours.length] } }), named(r)),
      el("small", { title: r.why || "" }, r.simulated ? "a step in virtual time" : `${r.state || (r.running ? "running" : "not running")}${r.data ? " · data job" : ` · step ${r.step}${r.steps ? " of " + r.steps : ""}`}`), el("small", {}, r.loss ? `loss ${si(r.loss)}` : ""), el("small", { title: r.plan }, r.model),
      r.steps ? el("progress", { max: r.steps, value: Math.min(r.step, r.steps), "aria-label": "steps done" }) : "", r.why ? el("small", { class: "why" }, r.why) : "", r.wrong ? el("small", {}, r.wrong) : "");
    if (r.marks?.tags?.length || r.marks?.note || r.marks?.archived) node.append(el("div", { title: r.marks.note || "" }, ...(r.marks.tags || []).map((t) => el("span", { class: "tag" }, t)), r.marks.archived ? el("span", { class: "tag warn" }, "archived") : "", r.marks.note ? el("small", { class: "note" }, r.marks.note) : ""));
    if (app.admin && !r.simulated) node.append(el("button", { onclick: (e) => { e.stopPropagation(); marking(r); } }, "mark"));
    if (app.admin && !r.simulated) node.append(el("a", { class: "talk", href: `/runs/${r.id}/talk/`, target: "_blank", title: "talk to its newest checkpoint", onclick: (e) => e.stopPropagation() }, "talk"));
    if (app.starts && !r.running && ["stopped", "failed", "killed"].includes(r.state)) node.append(el("button", { onclick: async (e) => {
      e.stopPropagation();
      try { await ask(`/api/runs/${r.id}/resume`, { method: "POST" }); setTimeout(() => refresh().catch(() => {}), 1500); } catch (err) { alert(err.message); }
    } }, "resume"));
    if (app.admin && r.running) node.append(el("button", { onclick: async (e) => {
      e.stopPropagation();
      if (!confirm(`Stop ${r.name}? It saves its state after the step under way.`)) return;
      try { await ask(`/api/runs/${r.id}/stop`, { method: "POST" }); } catch (err) { alert(err.message); }
    } }, "stop"));
    return node;
}
function choose(id, to) {
  app.main = id;
  if (app.run(id)?.data) to ??= "job"; else if (page[0] === "job") to ??= "curves";
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
  on("again", (d) => { // its files were written anew, perhaps by another run
    pages[0][2].again(d.run);
    if (d.run === app.main && ["events", "samples", "data", "checkpoints", "answers"].includes(page[0])) page[2].mount($("main").firstElementChild);
  });
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
$("group").append(...Object.keys(groups).map((g) => el("option", { value: g }, g ? `by ${g}` : "in order")));
$("group").addEventListener("change", (e) => { app.group = e.target.value; sidebar(); });
$("start").addEventListener("click", starting);
$("help").addEventListener("click", () => $("keys").showModal());
$("tabs").append(...pages.map(([name, title], i) => el("button", { role: "tab", "data-page": name, "aria-selected": "false", title: i < 10 ? `${title} (${(i + 1) % 10})` : title, hidden: name === "cluster" || name in some, onclick: () => open(name) }, title)));

async function refresh() {
  const d = await ask("/api/runs");
  app.runs = d.runs; app.admin = d.admin; app.cluster = d.cluster; app.starts = d.starts; app.files = d.files || [];
  $("start").hidden = !app.starts;
  tab("cluster").hidden = !app.cluster;
  for (const n in some) tab(n).hidden = !some[n](app.run(app.main));
  sidebar();
}
try {
  await refresh();
  if (app.cluster) app.main = (app.runs.findLast((r) => r.running) || app.runs.at(-1))?.id ?? 0;
  app.shown = app.cluster ? app.runs.slice(app.main, app.main + 1).map((r) => r.id) : app.runs.slice(0, 8).map((r) => r.id);
  sidebar();
  open(location.hash.slice(1) || (app.cluster ? "cluster" : app.runs[0]?.simulated ? "timeline" : app.runs[0]?.data ? "job" : "curves"), true);
  setInterval(() => refresh().catch(() => {}), 10000);
} catch (e) { $("main").replaceChildren(failed(e)); }
