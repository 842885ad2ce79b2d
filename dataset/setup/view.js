const all = s => [...document.querySelectorAll(s)];
function narrow() {
  const word = document.getElementById("word").value.toLowerCase();
  const of = name => document.getElementById(name) ? document.getElementById(name).value : "";
  const source = of("source"), kind = of("kind"), reason = of("reason");
  let shown = 0;
  for (const e of all(".item")) {
    const d = e.dataset;
    const on = (!source || d.source === source || (d.sources || "").split("\n").includes(source)) &&
      (!kind || d.kind === kind) && (!reason || d.reason === reason) &&
      (!word || e.textContent.toLowerCase().includes(word));
    e.hidden = !on;
    shown += on;
  }
  document.getElementById("shown").textContent = shown + " shown";
}
all("#word, select").forEach(e => e.addEventListener("input", narrow));
narrow();
