// What the pages share: elements, numbers, colours, questions to the server. Text reaches the page as text alone.
export const colours = ["#3b7dd8", "#e07b28", "#3aa06a", "#9a5fd0", "#d04a5a", "#1f9bb0", "#b08a1a", "#6b7686"];

export function el(tag, attrs, ...kids) {
  const e = tag === "svg" || attrs && attrs.svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(attrs || {})) {
    if (k === "svg" || v === undefined || v === null || v === false) continue;
    if (k.startsWith("on")) e.addEventListener(k.slice(2), v);
    else if (k === "css") for (const [p, x] of Object.entries(v)) e.style.setProperty(p, x);
    else e.setAttribute(k, v === true ? "" : v);
  }
  e.append(...kids.filter((k) => k !== null && k !== undefined));
  return e;
}
export const svg = (tag, attrs, ...kids) => el(tag, { svg: true, ...attrs }, ...kids);
export const $ = (id) => document.getElementById(id);
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export async function ask(path, options) {
  const r = await fetch(path, options);
  if (r.status === 401) throw new Error("The session is over: open the link that lfactor has printed.");
  if (!r.ok) throw new Error((await r.text()).trim());
  return r.json();
}

export function si(v, digits = 3) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a === 0) return "0";
  for (const [n, s] of [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e4, " k"]]) if (a >= n) return (v / (s === " k" ? 1e3 : n)).toPrecision(digits) + s;
  if (a < 1e-3) return v.toExponential(2);
  return a >= 100 ? v.toFixed(0) : String(+v.toPrecision(digits + 1));
}
export function bytes(v) {
  if (!isFinite(v) || v === null) return "–";
  for (const [n, s] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) if (v >= n) return (v / n).toFixed(v / n < 10 ? 2 : 1) + " " + s;
  return v.toFixed(0) + " B";
}
export function seconds(v) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  if (v === 0) return "0 s";
  if (v < 1e-3) return (v * 1e6).toFixed(0) + " µs";
  if (v < 0.9995) return (v * 1e3).toPrecision(3) + " ms";
  if (v < 59.95) return v.toFixed(v < 9.995 ? 2 : 1) + " s";
  const all = Math.round(v), m = Math.floor(all / 60);
  if (m < 60) return m + " min " + (all % 60) + " s";
  return Math.floor(m / 60) + " h " + (m % 60) + " min";
}
export const share = (v) => v === null || v === undefined || !isFinite(v) ? "–" : (100 * v).toFixed(1) + " %";
export const clock = (t) => new Date(t).toLocaleTimeString([], { hour12: false });

export function tip(e, text) {
  const t = $("tip");
  if (!text) { t.hidden = true; return; }
  t.textContent = text; t.hidden = false;
  t.style.setProperty("left", Math.min(e.clientX + 14, innerWidth - t.offsetWidth - 8) + "px");
  t.style.setProperty("top", Math.min(e.clientY + 14, innerHeight - t.offsetHeight - 8) + "px");
}

export function table(heads, rows, numeric = []) {
  const cls = (i) => numeric.includes(i) ? "n" : null;
  return el("table", {}, el("thead", {}, el("tr", {}, ...heads.map((h, i) => el("th", { scope: "col", class: cls(i) }, h)))),
    el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map((c, i) => el("td", { class: cls(i) }, c))))));
}
export const panel = (title, ...kids) => el("section", { class: "panel" }, title ? el("h3", {}, title) : null, ...kids);
export const failed = (e) => el("p", { class: "quiet", role: "alert" }, e.message || String(e));

// save gives a file to whoever looks.
export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

// smooth fits a straight line around each point, by weights exp(-distance / width) to both sides, and takes its value there.
// A mean of what came before lags where a curve falls; this gives a straight line back as it is, at both ends too. A curve
// falls fastest at its start, so the width is tau, but never more than a third of what came before. At an end a line overshoots
// what is there, so that the value stays within the least and the greatest of those it is made of.
// Source: local linear regression, W. S. Cleveland, JASA 74 (1979), with an exponential kernel.
export function smooth(xs, ys, tau) {
  const at = [], out = new Array(xs.length).fill(null);
  for (let i = 0; i < xs.length; i++) if (ys[i] !== null && ys[i] !== undefined) at.push(i);
  for (let a = 0; a < at.length; a++) {
    const x = xs[at[a]], gap = a ? x - xs[at[a - 1]] : 1, h = Math.min(tau, Math.max((x - xs[at[0]]) / 3, gap / 4));
    let s0 = 0, s1 = 0, s2 = 0, t0 = 0, t1 = 0, lo = Infinity, hi = -Infinity;
    const add = (b) => {
      const d = xs[at[b]] - x, w = Math.exp(-Math.abs(d) / h), y = ys[at[b]];
      if (w < 1e-3) return false;
      s0 += w; s1 += w * d; s2 += w * d * d; t0 += w * y; t1 += w * d * y; lo = Math.min(lo, y); hi = Math.max(hi, y);
      return true;
    };
    for (let b = a; b >= 0 && add(b); b--);
    for (let b = a + 1; b < at.length && add(b); b++);
    const det = s0 * s2 - s1 * s1;
    out[at[a]] = Math.min(hi, Math.max(lo, det > 1e-9 * s0 * s2 ? (s2 * t0 - s1 * t1) / det : t0 / s0));
  }
  return out;
}
