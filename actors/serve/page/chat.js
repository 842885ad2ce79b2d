// The page on which people talk to a served model. It asks the server's own API, keeps the conversation in this tab, and
// says of each piece of an answer how likely its tokens were. Texts are never taken for HTML.
const $ = (id) => document.getElementById(id);
const make = (kind, of = {}, ...inside) => {
  const e = Object.assign(document.createElement(kind), of);
  e.append(...inside);
  return e;
};

let about = {};
let models = []; // {name, at}: at is "" for this server and "beside/" for the other
let history = []; // messages of the conversation
let pictures = []; // data URLs that go with the next message
let kept = []; // pairs that this tab holds, where the server keeps none
let asking = null; // AbortController of answers under way
let open = null; // the turn whose better answer may still be chosen

const headers = () => ({ "Content-Type": "application/json", ...($("token").value && { Authorization: "Bearer " + $("token").value }) });

async function call(path, body, signal) {
  const r = await fetch(path, { method: body ? "POST" : "GET", headers: headers(), body: body && JSON.stringify(body), signal });
  if (!r.ok) {
    const text = await r.text();
    let why = text;
    try { why = JSON.parse(text).error.message; } catch { /* it is no error in the API's form */ }
    throw Object.assign(new Error(why || `the server says ${r.status}`), { status: r.status });
  }
  return r;
}

// note tells what goes on, below the message.
const note = (text) => { $("note").textContent = text; };

async function look() {
  try {
    about = await (await call("page/about")).json();
    models = [];
    for (const at of about.beside ? ["", "beside/"] : [""]) {
      try {
        for (const m of (await (await call(at + "v1/models")).json()).data) models.push({ name: m.id, at });
      } catch (e) {
        if (!at) throw e;
        note(e.message);
      }
    }
  } catch (e) {
    if (e.status === 401) {
      $("settings").open = true;
      $("token").focus();
      note("This server wants a token: give it as the API key.");
    } else note(e.message);
    return;
  }
  sessionStorage.setItem("token", $("token").value);
  if (!about.chats) $("form").value = "text";
  $("form").querySelector("[value=chat]").disabled = !about.chats;
  $("picture").hidden = !about.sees;
  if (models.length > 1 && !history.length) $("columns").value = "2";
  choices();
}

// choices are the models that the columns ask.
function choices() {
  const was = [...$("models").querySelectorAll("select")].map((s) => s.value);
  $("models").replaceChildren();
  for (let i = 0; i < +$("columns").value; i++) {
    const select = make("select", { ariaLabel: `model ${i + 1}` });
    models.forEach((m, n) => select.append(make("option", { value: n, textContent: m.name + (m.at ? " (beside)" : "") })));
    select.value = was[i] ?? Math.min(i, models.length - 1);
    $("models").append(make("label", {}, +$("columns").value > 1 ? "AB"[i] + " " : "model ", select));
  }
}

const number = (id) => ($(id).value === "" ? undefined : +$(id).value);

// request is what a column asks for. Columns of one model and a seed draw differently.
function request(i, text, chat) {
  const seed = number("seed");
  const most = number("max_tokens");
  const body = { temperature: number("temperature"), top_p: number("top_p"), max_tokens: most, stream: true, seed: seed === undefined ? undefined : seed + i };
  return chat ? { ...body, messages: prompt(), logprobs: true, top_logprobs: 5 } : { ...body, prompt: text, logprobs: 5 };
}

// prompt is the conversation with the system's message.
const prompt = () => [...($("system").value ? [{ role: "system", content: $("system").value }] : []), ...history];

// events are the parsed events of a streamed answer.
async function* events(r) {
  const from = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ""; ;) {
    const { done, value } = await from.read();
    if (done) return;
    text += value;
    const lines = text.split("\n");
    text = lines.pop();
    for (const l of lines) {
      if (!l.startsWith("data: ") || l === "data: [DONE]") continue;
      const x = JSON.parse(l.slice(6));
      if (x.error) throw new Error(x.error.message);
      yield x;
    }
  }
}

// likely are the tokens of a piece, in the form of chats or of texts: what each is, its probability, and the likeliest.
function likely(c) {
  if (c.logprobs?.content) return c.logprobs.content.map((t) => ({ text: t.token, p: Math.exp(t.logprob), best: t.top_logprobs.map((o) => [o.token, Math.exp(o.logprob)]) }));
  return (c.logprobs?.tokens ?? []).map((text, i) => ({ text, p: Math.exp(c.logprobs.token_logprobs[i] ?? 0),
    best: Object.entries(c.logprobs.top_logprobs?.[i] ?? {}).map(([t, l]) => [t, Math.exp(l)]) }));
}

const percent = (p) => (100 * p).toFixed(p > 0.0995 ? 0 : 1).padStart(5) + " %";
const told = (tokens) => tokens.map((t) => [`${percent(t.p)}  ${JSON.stringify(t.text)}`,
  ...t.best.filter(([text]) => text !== t.text).map(([text, p]) => `   ${percent(p)}  ${JSON.stringify(text)}`)].join("\n")).join("\n");

// answer fills a card with a column's answer, and gives its text.
async function answer(card, i, model, text, chat, signal) {
  const body = make("div", { className: "text" });
  const thought = make("div", { className: "thought" });
  const thoughts = make("details", { hidden: true }, make("summary", { textContent: "reasoning" }), thought);
  const calls = make("div", { className: "calls" });
  const sum = make("small");
  card.append(make("h2", {}, model.name, sum), thoughts, body, calls);
  let all = "", n = 0, ended = "";
  const began = performance.now();
  try {
    const r = await call(model.at + (chat ? "v1/chat/completions" : "v1/completions"), { ...request(i, text, chat), model: model.name }, signal);
    for await (const x of events(r)) {
      const c = x.choices[0];
      if (!c) continue;
      const d = c.delta ?? { content: c.text };
      const tokens = likely(c);
      n += tokens.length;
      if (d.reasoning) {
        thoughts.hidden = false;
        thought.append(d.reasoning);
      }
      for (const t of d.tool_calls ?? []) calls.append((t.function.name ? `\n${t.function.name} ` : "") + (t.function.arguments ?? ""));
      if (d.content) {
        all += d.content;
        const span = make("span", { textContent: d.content });
        span.told = told(tokens);
        span.style.setProperty("--p", Math.min(1, ...tokens.map((t) => t.p)));
        body.append(span);
      }
      if (c.finish_reason) ended = c.finish_reason;
    }
  } catch (e) {
    card.append(make("div", { className: e.name === "AbortError" ? "thought" : "wrong", textContent: e.name === "AbortError" ? "stopped" : e.message }));
    ended = e.name === "AbortError" ? "stopped" : "failed";
  }
  const seconds = (performance.now() - began) / 1000;
  sum.textContent = `${n} tokens, ${(n / seconds).toFixed(1)} a second${ended === "length" ? ", cut at the limit" : ""}`;
  return { text: all, ended, model, card };
}

async function send() {
  const text = $("text").value;
  if (asking || (!text && !pictures.length) || !models.length) return;
  settle();
  const chat = $("form").value === "chat";
  const said = make("div", { className: "said", textContent: text }, ...pictures.map((src) => make("img", { src, alt: "" })));
  const cards = make("div", { className: "answers" });
  $("turns").append(make("section", { className: "turn" }, said, cards));
  if (chat) history.push({ role: "user", content: pictures.length ? [...pictures.map((url) => ({ type: "image_url", image_url: { url } })), { type: "text", text }] : text });
  const asked = chat ? prompt() : text;
  $("text").value = "";
  pictures = [];
  $("pictures").replaceChildren();
  asking = new AbortController();
  busy();
  const columns = [...$("models").querySelectorAll("select")].map((s) => models[s.value]);
  const answers = await Promise.all(columns.map((m, i) => {
    const card = make("article", { className: "answer" });
    cards.append(card);
    return answer(card, i, m, text, chat, asking.signal);
  }));
  asking = null;
  busy();
  if (!said.isConnected) return; // a new conversation has begun
  open = { answers, asked, chat };
  if (answers.length > 1 && answers.every((a) => a.text && a.ended !== "failed")) {
    for (const a of answers) a.card.append(make("button", { textContent: "This one is better", onclick: () => prefer(a) }));
  } else if (chat && !answers.some((a) => a.text)) { // what was not answered may be said again
    history.pop();
    open = null;
    $("text").value = text;
  }
  $("turns").scrollTo(0, $("turns").scrollHeight);
}

// settle goes on with an answer: the better one, or the first.
function settle(better) {
  if (!open) return;
  const a = better ?? open.answers.find((x) => x.text);
  if (open.chat && a) history.push({ role: "assistant", content: a.text });
  for (const x of open.answers) x.card.querySelector(":scope > button")?.remove();
  open = null;
}

// prefer keeps a pair of answers, and goes on with the better one.
async function prefer(better) {
  if (!open) return;
  const worse = open.answers.find((a) => a !== better);
  const say = (a) => (open.chat ? [{ role: "assistant", content: a.text }] : a.text);
  const pair = { prompt: open.asked, chosen: say(better), rejected: say(worse) };
  better.card.classList.add("better");
  settle(better);
  try {
    if (about.pairs) {
      await call("page/pairs", pair);
      note("The pair is kept.");
    } else {
      kept.push(pair);
      $("pairs").hidden = false;
      $("pairs").textContent = `Save ${kept.length} pair${kept.length > 1 ? "s" : ""}`;
    }
  } catch (e) {
    note(`The pair is not kept: ${e.message}`);
  }
}

function busy() {
  $("send").disabled = !!asking;
  $("stop").hidden = !asking;
}

// A tip follows the mouse over pieces of answers.
const tip = make("div", { id: "tip", hidden: true });
document.body.append(tip);
$("turns").addEventListener("mousemove", (e) => {
  const span = e.target.closest?.(".text span");
  tip.hidden = !span?.told;
  if (tip.hidden) return;
  tip.textContent = span.told;
  tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + "px";
  tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + "px";
});
$("turns").addEventListener("mouseleave", () => { tip.hidden = true; });

$("ask").addEventListener("submit", (e) => { e.preventDefault(); send(); });
$("text").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
});
$("stop").onclick = () => asking?.abort();
$("columns").onchange = choices;
$("token").onchange = look;
$("tint").onchange = () => document.body.classList.toggle("tint", $("tint").checked);
$("clear").onclick = () => {
  asking?.abort();
  history = [];
  open = null;
  $("turns").replaceChildren();
};
$("pairs").onclick = () => {
  const url = URL.createObjectURL(new Blob(kept.map((p) => JSON.stringify(p) + "\n"), { type: "application/x-ndjson" }));
  make("a", { href: url, download: "pairs.jsonl" }).click();
  URL.revokeObjectURL(url);
  kept = [];
  $("pairs").hidden = true;
};
$("picture").querySelector("input").onchange = (e) => {
  for (const file of e.target.files) {
    const r = new FileReader();
    r.onload = () => {
      pictures.push(r.result);
      $("pictures").append(make("img", { src: r.result, alt: file.name }));
    };
    r.readAsDataURL(file);
  }
  e.target.value = "";
};
addEventListener("beforeunload", (e) => { if (kept.length) e.preventDefault(); });

$("token").value = sessionStorage.getItem("token") ?? "";
look();
