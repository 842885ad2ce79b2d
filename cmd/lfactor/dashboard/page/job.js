// A recipe of lfactor data run: what came in, what each step let through, and why documents were dropped.
import { el, ask, si, bytes, share, table, panel, failed } from "/page/lib.js";

export class Job {
  constructor(app) { this.app = app; }
  async mount(root) {
    this.root = root;
    try {
      const j = await ask(`/api/runs/${this.app.main}/job`);
      if (this.root !== root) return;
      if (!j.done) {
        root.replaceChildren(panel("Under way, or cut off", j.blocks.length ? table(["stage", "blocks made"], j.blocks.map((n, i) => [String(i + 1), si(n)]), [1]) : el("p", { class: "quiet" }, "No block is made yet."),
          el("p", { class: "quiet" }, "Counts come with the report, when all blocks are made. The same command goes on where it was cut off.")));
        setTimeout(() => { if (this.root === root) this.mount(root); }, 2000);
        return;
      }
      const r = j.report, why = (d) => Object.entries(d || {}).sort((a, b) => b[1] - a[1]).map(([k, n]) => `${k} ${si(n)}`).join(", ");
      const bar = (v) => el("span", { class: "split", css: { width: "160px" } }, el("i", { css: { width: 100 * v + "%", background: "var(--accent)" } }));
      root.replaceChildren(panel(`${r.recipe}: what came in`, table(["input", "files", "documents", "text", "unreadable"], r.inputs.map((i) => [i.name, si(i.files), si(i.documents), bytes(i.bytes), si(i.unreadable)]), [1, 2, 3, 4])),
        panel("Steps", r.steps.length ? table(["step", "kind", "in", "out", "kept", "", "dropped, by reason"], r.steps.map((s) => { const v = s.in ? s.out / s.in : 1; return [s.name, s.step, si(s.in), si(s.out), share(v), bar(Math.min(1, v)), why(s.dropped)]; }), [2, 3, 4]) : el("p", { class: "quiet" }, "The recipe has no steps.")),
        panel("What was written", table(["output", "format", "files", "documents", "text", "not held by the format"], r.outputs.map((o) => [o.name, o.format, si(o.files?.length || 0), si(o.documents), bytes(o.bytes), why(o.dropped) || (o.note || "")]), [2, 3, 4])),
        panel("Dropped documents, the first of each reason", r.examples?.length ? table(["step", "reason", "input", "document", "file and byte", "begins"], r.examples.map((d) => [d.step, d.reason + (d.detail ? ": " + d.detail : ""), d.input, String(d.document), d.file ? `${d.file}${d.offset ? " " + d.offset : ""}` : "", d.head || ""]), [3]) : el("p", { class: "quiet" }, "None.")));
    } catch (e) { root.replaceChildren(failed(e)); }
  }
  unmount() { this.root = null; }
}
