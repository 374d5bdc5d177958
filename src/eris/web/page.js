"use strict";
// What the page knows, and how it is drawn. Every word that came from elsewhere is set as text, never as markup.
const known = { run: {}, peers: {}, rounds: [], losses: [], lines: [] };
const most = { rounds: 2000, losses: 200, lines: 500 };
const $ = (id) => document.getElementById(id);
const seen = { paused: false, drawn: false, order: 0, filter: "", level: 0, ended: false };

function make(name, text, attributes = {}) {
  const node = document.createElement(name);
  if (text !== undefined && text !== null) node.textContent = text;
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}
function drawn(name, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

// ── numbers as people read them ─────────────────────────────────────────────────────────────────────────────────────
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const count = (value) => (isNumber(value) ? value.toLocaleString("en") : "–");
function digits(value) {
  const size = Math.abs(value);
  return value.toLocaleString("en", { maximumFractionDigits: size >= 99.95 || size === 0 ? 0 : size >= 9.995 ? 1 : 2 });
}
function bytes(value) {
  if (!isNumber(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${unit ? digits(value) : Math.round(value)} ${units[unit]}`;
}
function seconds(value) {
  if (!isNumber(value)) return "–";
  if (value < 0.9995) return `${digits(value * 1000)} ms`;
  if (value < 90) return `${digits(value)} s`;
  if (value < 5400) return `${digits(value / 60)} min`;
  return `${digits(value / 3600)} h`;
}
const percent = (value) => (isNumber(value) ? `${digits(value * 100)} %` : "–");
const plain = (value) => (!isNumber(value) ? "–" : Math.abs(value) >= 1e5 || (value && Math.abs(value) < 1e-3)
  ? value.toExponential(2) : String(Number(value.toPrecision(4))));
const clock = (when) => new Date(when * 1000).toLocaleTimeString("en-GB");

// ── head and figures ────────────────────────────────────────────────────────────────────────────────────────────────
const kinds = { coordinator: "coordinator of", peer: "peer", folder: "folder" };
function drawHead() {
  const run = known.run, state = run.state || "–", over = ["finished", "stopped", "failed"].includes(state);
  $("kind").textContent = `live · ${kinds[run.kind] || ""} ${run.title || ""}`;
  $("state").textContent = state;
  $("state").className = `badge ${state}`;
  const done = run.round || 0, rounds = run.rounds || 0;
  const at = over || done >= rounds ? `${count(done)} of ${count(rounds)} rounds` : `Round ${count(done + 1)} of ${count(rounds)}`;
  $("headline").textContent = rounds ? at : "Nothing has begun yet";
  const why = run.why && run.why !== state ? run.why : "";
  $("why").textContent = why;
  $("why").className = ["training", "waiting", "finished"].includes(state) ? "why calm" : "why";
  $("bar").setAttribute("aria-valuemax", rounds);
  $("bar").setAttribute("aria-valuenow", done);
  $("bar-fill").style.width = rounds ? `${(100 * done) / rounds}%` : "0";
  const parts = [run.method, run.members && `${count(run.members)} members`, run.shards && `${count(run.shards)} shards`,
    run.parameters && `${count(run.parameters)} parameters`, run.chain, run.run && `run ${run.run}`,
    run.version && `eris ${run.version}`, ...(run.notes || [])];
  $("setting").textContent = parts.filter(Boolean).join(" · ");
  document.title = rounds ? `${done}/${rounds} ${state} · ${run.title || "eris"}` : `${state} · eris`;
}
function lastSeconds(howMany = 10) {
  const recent = known.rounds.slice(-howMany).map((row) => total(row.seconds)).filter(isNumber);
  return recent.length ? recent.reduce((a, b) => a + b, 0) / recent.length : NaN;
}
function total(stages) {
  if (!stages) return NaN;
  return isNumber(stages.round) ? stages.round : Object.values(stages).reduce((a, b) => a + b, 0);
}
function tiles() {
  const run = known.run, found = [], lost = Object.values(run.lost || {}).reduce((a, b) => a + b, 0);
  const rows = Object.values(known.peers), here = rows.filter((row) => row.here).length;
  if (rows.length && rows.some((row) => "here" in row)) {
    const gone = rows.length - here;
    found.push({ name: "Peers here", value: `${count(here)} of ${count(rows.length)}`, alarm: gone > 0 && run.state !== "waiting" });
  }
  if (isNumber(run.accuracy)) found.push({ name: "Accuracy", value: percent(run.accuracy), more: "own held-out data" });
  const loss = isNumber(run.loss) ? run.loss : run.train_loss;
  if (isNumber(loss)) found.push({ name: isNumber(run.loss) ? "Loss" : "Training loss", value: plain(loss) });
  const mean = lastSeconds(), left = (run.rounds - run.round) * mean;
  if (isNumber(mean)) {
    const more = left > 0 && run.state === "training" ? `about ${seconds(left)} left` : "mean of the last ten";
    found.push({ name: "A round", value: seconds(mean), more });
  }
  if (run.sent || run.received) {
    found.push({ name: "Sent", value: bytes(run.sent) }, { name: "Received", value: bytes(run.received) });
  }
  if (run.coordinator) {
    const { name, term, epoch } = run.coordinator;
    found.push({ name: "Coordinator", value: name, more: isNumber(epoch) ? `term ${term}, epoch ${epoch}` : `term ${term}` });
  }
  if (run.control) found.push({ name: "Control documents", value: bytes(run.control.sent + run.control.received), more: "no values pass here" });
  found.push({ name: "Lost shards", value: count(lost), alarm: lost > 0 && ["degraded", "failed"].includes(run.state) });
  if (isNumber(run.largest_share)) {
    const limit = run.floor && run.floor.max_share;
    found.push({ name: "Exposure", value: percent(run.largest_share), meter: isNumber(limit) ? [run.largest_share, limit] : null,
      more: isNumber(limit) ? `of an update at one peer; the floor allows ${percent(limit)}` : "of an update at one observer",
      alarm: isNumber(limit) && run.largest_share > limit + 1e-9 });
  }
  if (isNumber(run.union_over_rounds)) found.push({ name: "Seen over all rounds", value: percent(run.union_over_rounds), more: "of the coordinates, by one observer" });
  if (run.masking) found.push({ name: "Masking", value: run.masking });
  if (run.privacy) found.push({ name: "Spent on privacy", value: run.epsilon || "ε", more: run.privacy, wide: true });
  if (run.budget) found.push({ name: "Over all runs", value: run.budget.value, more: run.budget.more, wide: true });
  if (isNumber(run.expires) && run.expires > 0) {
    const days = (run.expires - Date.now() / 1000) / 86400;
    found.push({ name: "Certificate", value: days < 0 ? "expired" : `${count(Math.floor(days))} days`, more: "until it expires", alarm: days < 30 });
  }
  return found;
}
function drawTiles() {
  $("tiles").replaceChildren(...tiles().map((tile) => {
    const box = make("div", null, { class: `tile${tile.alarm ? " alarm" : ""}${tile.wide ? " wide" : ""}` }), value = make("dd", tile.value);
    if (tile.meter) {
      const [at, limit] = tile.meter;
      value.append(make("meter", `${percent(at)} of ${percent(limit)}`, { min: 0, max: Math.max(limit, at), value: at, high: limit, optimum: 0 }));
    }
    if (tile.more) value.append(make("small", tile.more));
    box.append(make("dt", tile.name), value);
    return box;
  }));
}

// ── curves ──────────────────────────────────────────────────────────────────────────────────────────────────────────
const W = 560, H = 190, LEFT = 58, BOTTOM = 24, TOP = 10, RIGHT = 12;
function steps(low, high, wanted) {
  const raw = (high - low) / wanted || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw) || raw, found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-6 ? 0 : at);
  return found;
}
function thinned(points) {
  const every = Math.ceil(points.length / 400);
  return every > 1 ? points.filter((_, index) => index % every === 0 || index === points.length - 1) : points;
}
function frame(xs, low, high, format) {
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img" });
  const first = Math.min(...xs), last = Math.max(...xs, first + 1);
  const x = (value) => LEFT + ((value - first) / (last - first)) * (W - LEFT - RIGHT);
  const y = (value) => H - BOTTOM - ((value - low) / (high - low || 1)) * (H - BOTTOM - TOP);
  for (const at of steps(low, high, 4)) {
    svg.append(drawn("line", { x1: LEFT, x2: W - RIGHT, y1: y(at), y2: y(at), class: "grid" }));
    svg.append(drawn("text", { x: LEFT - 8, y: y(at) + 4, "text-anchor": "end" }, format(at)));
  }
  for (const at of steps(first, last, 6).filter(Number.isInteger)) {
    svg.append(drawn("text", { x: x(at), y: H - 6, "text-anchor": "middle" }, at));
  }
  return { svg, x, y };
}
function curves(place, series, format, { fromZero = false, bounds = null } = {}) {
  const box = $(place), values = series.flatMap((one) => one.points.map((point) => point[1]));
  if (!values.length) { box.replaceChildren(make("p", "nothing measured yet", { class: "none" })); return; }
  let low = bounds ? bounds[0] : fromZero ? 0 : Math.min(...values), high = bounds ? bounds[1] : Math.max(...values);
  if (high - low < 1e-12) { high = low + (Math.abs(low) || 1) * 0.1; if (!fromZero) low -= (Math.abs(low) || 1) * 0.1; }
  const { svg, x, y } = frame(series.flatMap((one) => one.points.map((point) => point[0])), low, high, format);
  const ends = series.map((one) => `${one.name ? `${one.name} ` : ""}${format(one.points.at(-1)[1])}`).join(", ");
  svg.setAttribute("aria-label", `${place} by round; now ${ends}`);
  for (const one of series) {
    const points = thinned(one.points), path = points.map(([at, value], i) => `${i ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`);
    const line = drawn("path", { d: path.join(""), fill: "none", "stroke-width": 2, "stroke-linejoin": "round" });
    line.style.stroke = `var(--series-${one.colour})`;
    if (one.dash) line.setAttribute("stroke-dasharray", one.dash);
    const [at, value] = points.at(-1), mark = drawn("circle", { cx: x(at), cy: y(value), r: 3.5 });
    mark.style.fill = `var(--series-${one.colour})`;
    svg.append(line, mark);
  }
  box.replaceChildren(...(series.length > 1 || series[0].name ? [keys(series)] : []), svg);
}
function keys(series) {
  const line = make("div");
  for (const one of series) {
    const key = make("span", null, { class: "key" }), mark = make("i");
    mark.style.background = `var(--series-${one.colour})`;
    key.append(mark, one.last ? `${one.name} ${one.last}` : one.name);
    line.append(key);
  }
  return line;
}
function ofRounds(field, format) {
  const found = new Map();
  for (const row of known.rounds) {
    if (!isNumber(row[field])) continue;
    const name = row.series || "";
    if (!found.has(name)) found.set(name, { name, points: [], colour: (found.size % 7) + 1, dash: ["", "6 3", "2 3", "9 3 2 3"][Math.floor(found.size / 7) % 4] });
    found.get(name).points.push([row.round + 1, row[field]]);
  }
  for (const one of found.values()) one.last = one.name ? format(one.points.at(-1)[1]) : "";
  return [...found.values()];
}
function drawCurves() {
  const held = ofRounds("loss", plain), trained = ofRounds("train_loss", plain), single = trained.length <= 1 && held.length <= 1;
  for (const one of trained) { one.name = one.name || "training"; one.last = plain(one.points.at(-1)[1]); }
  for (const one of held) { one.name = one.name || "held-out"; one.last = plain(one.points.at(-1)[1]); one.dash = "6 3"; if (single) one.colour = 2; }
  curves("accuracy", ofRounds("accuracy", percent), percent);
  curves("loss", single ? [...trained, ...held] : (held.length ? held : trained), plain);
  drawStages();
  const up = { name: "sent", colour: 1, points: [] }, down = { name: "received", colour: 2, points: [], dash: "6 3" };
  for (const row of mainRounds()) {
    if (isNumber(row.up)) { up.points.push([row.round + 1, row.up]); down.points.push([row.round + 1, row.down]); }
  }
  curves("bytes", up.points.length ? [up, down] : [], bytes, { fromZero: true });
  const coordinator = known.run.kind === "coordinator", note = known.run.kind === "folder" ? "on held-out data" : "measured here, sent to nobody";
  for (const id of ["accuracy-box", "loss-figure", "bytes-box"]) $(id).hidden = coordinator;
  $("troubles-box").hidden = !coordinator;
  $("accuracy-note").textContent = note;
  $("loss-note").textContent = note;
  if (coordinator) drawTroubles();
}
function drawTroubles() {
  const rows = known.rounds.slice(-400), of = (field) => rows.map((row) => [row.round + 1, row[field] || 0]);
  const series = [{ name: "lost shards", colour: 2, points: of("lost") }, { name: "late peers", colour: 5, points: of("late"), dash: "6 3" }];
  for (const one of series) one.last = one.points.length ? count(one.points.at(-1)[1]) : "";
  curves("troubles", rows.length ? series : [], (value) => (Number.isInteger(value) ? count(value) : ""), { fromZero: true });
}
function mainRounds() {
  const last = known.rounds.at(-1);
  return last && last.series ? known.rounds.filter((row) => row.series === last.series) : known.rounds;
}
function drawStages() {
  const rows = mainRounds().slice(-60), box = $("seconds"), names = [...new Set(rows.flatMap((row) => Object.keys(row.seconds || {})))]
    .filter((name, _, all) => name !== "round" || all.length === 1);
  if (!rows.length || !names.length) { box.replaceChildren(make("p", "nothing measured yet", { class: "none" })); return; }
  const high = Math.max(...rows.map((row) => Math.max(total(row.seconds), names.reduce((a, n) => a + (row.seconds[n] || 0), 0))), 1e-9);
  const xs = rows.map((row) => row.round + 1), { svg, x, y } = frame([Math.min(...xs) - 0.5, Math.max(...xs) + 0.5], 0, high, seconds);
  const width = Math.max(1, Math.min(26, (W - LEFT - RIGHT) / (Math.max(...xs) - Math.min(...xs) + 1) - 2));
  svg.setAttribute("aria-label", `seconds of the last ${rows.length} rounds by stage: ${names.join(", ")}`);
  for (const row of rows) {
    let base = 0;
    names.forEach((name, index) => {
      const value = (row.seconds || {})[name] || 0;
      const part = drawn("rect", { x: x(row.round + 1) - width / 2, width, y: y(base + value), height: Math.max(0, y(base) - y(base + value)) });
      part.style.fill = `var(--series-${(index % 7) + 1})`;
      part.append(drawn("title", {}, `round ${row.round + 1}: ${name} ${seconds(value)}`));
      svg.append(part);
      base += value;
    });
  }
  const series = names.map((name, index) => ({ name, colour: (index % 7) + 1, last: seconds(rows.at(-1).seconds[name]) }));
  box.replaceChildren(keys(series), svg);
}

// ── peers ───────────────────────────────────────────────────────────────────────────────────────────────────────────
const columns = [
  { title: "Peer", of: (name) => name },
  { title: "State", of: (_, row) => stateOf(row) },
  { title: "Aggregates", of: (_, row) => (row.aggregates ? "yes" : "no") },
  { title: "Late", of: (_, row) => row.late || 0, number: true },
  { title: "Round", of: (_, row) => row.round, number: true, only: "round" },
  { title: "Loss", of: (_, row) => row.loss, number: true, only: "loss", show: plain },
  { title: "Organisation", of: (_, row) => row.organisation || "" },
  { title: "Reached", of: (_, row) => row.reached || "", only: "reached" },
  { title: "Certificate", of: (_, row) => row.expires || 0, number: true, only: "expires",
    show: (value) => (value ? `${count(Math.floor((value - Date.now() / 1000) / 86400))} days` : "–") },
];
function stateOf(row) {
  return row.here === undefined ? row.state || "–" : row.here ? "here" : "gone";
}
function shownColumns() {
  const rows = Object.values(known.peers);
  return columns.filter((column) => !column.only || rows.some((row) => column.only in row));
}
function drawPeers() {
  const shown = shownColumns(), order = Math.min(seen.order, 2 * shown.length - 1), by = shown[order >> 1], down = order % 2;
  const words = seen.filter.toLowerCase().split(/\s+/).filter(Boolean), names = Object.keys(known.peers);
  const rows = names.map((name) => [name, known.peers[name]])
    .filter(([name, row]) => words.every((word) => `${name} ${row.organisation || ""} ${stateOf(row)} ${row.reached || ""} ${row.late ? "late" : ""}`.toLowerCase().includes(word)));
  const key = ([name, row]) => by.of(name, row) ?? "";
  const collator = new Intl.Collator("en", { numeric: true });
  rows.sort((one, two) => (typeof key(one) === "number" && typeof key(two) === "number" ? key(one) - key(two) : collator.compare(String(key(one)), String(key(two)))) * (down ? -1 : 1));
  $("peer-head").replaceChildren(...shown.map((column, index) => {
    const sorted = by === column ? (down ? "descending" : "ascending") : "none";
    const head = make("th", null, { scope: "col", "aria-sort": sorted, ...(column.number ? { class: "number" } : {}) });
    const button = make("button", `${column.title}${sorted === "none" ? "" : down ? " ↓" : " ↑"}`, { type: "button" });
    button.addEventListener("click", () => { seen.order = by === column && !down ? 2 * index + 1 : 2 * index; drawPeers(); $("peer-head").children[index].firstChild.focus(); });
    head.append(button);
    return head;
  }));
  $("peer-rows").replaceChildren(...rows.map(([name, row]) => {
    const line = make("tr", null, row.here === false ? { class: "gone" } : {});
    line.append(...shown.map((column) => {
      const value = column.of(name, row);
      return make("td", column.show ? column.show(value) : value ?? "–", column.number ? { class: "number" } : {});
    }));
    return line;
  }));
  const gone = names.filter((name) => known.peers[name].here === false).length;
  $("peers-note").textContent = `${count(rows.length)} of ${count(names.length)} shown${gone ? `, ${count(gone)} not here` : ""}`;
  $("matrix").replaceChildren(...(names.length > 1 ? names : []).map((name) => {
    const row = known.peers[name];
    return make("i", null, { title: `${name}: ${stateOf(row)}${row.late ? `, late ${row.late} times` : ""}`, class: row.here === false ? "gone" : row.state === "late" || (!row.state && row.late) ? "late" : "" });
  }));
  $("peers").hidden = !names.length;
}

// ── losses and log ──────────────────────────────────────────────────────────────────────────────────────────────────
function drawLosses() {
  const lost = Object.entries(known.run.lost || {}).sort((one, two) => two[1] - one[1]);
  $("losses-note").textContent = lost.length ? "their coordinates stayed as they were for a round" : "none so far";
  $("reasons").replaceChildren(...lost.map(([why, times]) => {
    const item = make("li", ` ${why}`);
    item.prepend(make("b", `${count(times)} ×`));
    return item;
  }));
  $("loss-box").hidden = !known.losses.length;
  $("loss-rows").replaceChildren(...[...known.losses].reverse().map((row) => {
    const line = make("tr");
    line.append(make("td", row.round + 1), make("td", row.shard), make("td", row.aggregator), make("td", row.why));
    return line;
  }));
}
const levels = { debug: 0, info: 0, warning: 1, error: 2, critical: 2 };
function drawLines() {
  const box = $("lines"), follows = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
  const rows = known.lines.filter((row) => (levels[row.level] || 0) >= seen.level);
  box.replaceChildren(...rows.map((row) => {
    const line = make("li", null, { class: row.level });
    line.append(make("time", clock(row.time)), row.text);
    return line;
  }));
  if (!rows.length) box.append(make("li", "nothing yet"));
  if (follows) box.scrollTop = box.scrollHeight;
}

// ── the stream ──────────────────────────────────────────────────────────────────────────────────────────────────────
const parts = { run: [drawHead, drawTiles, drawLosses], peers: [drawPeers, drawTiles], rounds: [drawCurves, drawTiles], losses: [drawLosses], lines: [drawLines] };
const due = new Set();
function draw(names) {
  for (const name of names) for (const part of parts[name] || []) due.add(part);
  if (seen.drawn || seen.paused) return;
  seen.drawn = true;
  requestAnimationFrame(() => {
    seen.drawn = false;
    if (seen.paused) return;
    const now = [...due];
    due.clear();
    now.forEach((part) => part());
    document.body.dataset.drawn = String(Number(document.body.dataset.drawn || 0) + 1);
  });
}
function take(data) {
  if (data.run) Object.assign(known.run, data.run);
  for (const [name, row] of Object.entries(data.peers || {})) known.peers[name] = row;
  for (const name of ["rounds", "losses", "lines"]) {
    if (data[name]) known[name] = known[name].concat(data[name]).slice(-most[name]);
  }
  draw(Object.keys(data));
}
function standing(how, text) {
  $("line").className = `line ${how}`;
  $("line-text").textContent = text;
}
function listen() {
  const source = new EventSource("events");
  source.addEventListener("whole", (event) => {
    Object.assign(known, { run: {}, peers: {}, rounds: [], losses: [], lines: [] });
    standing("live", "live");
    take(JSON.parse(event.data));
    draw(Object.keys(parts));
  });
  source.addEventListener("change", (event) => take(JSON.parse(event.data)));
  source.addEventListener("end", () => {
    seen.ended = true;
    source.close();
    standing("", "the process has ended; this is what it last said");
  });
  source.addEventListener("error", () => {
    if (!seen.ended) standing("broken", "no connection; trying again");
  });
}

// ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────
function pause() {
  seen.paused = !seen.paused;
  $("pause").setAttribute("aria-pressed", seen.paused);
  if (!seen.paused) draw([]);
}
const isDark = () => (document.documentElement.dataset.theme || (matchMedia("(prefers-color-scheme:dark)").matches ? "dark" : "light")) === "dark";
function nameTheme() { $("theme").firstChild.textContent = isDark() ? "Light " : "Dark "; }
function changeTheme() {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("eris-theme", document.documentElement.dataset.theme); } catch { /* a private window keeps nothing */ }
  nameTheme();
}
function goTo(id) { $(id).scrollIntoView({ block: "start" }); $(id).focus(); }
const pressed = {
  "/": () => $("filter").focus(), p: pause, d: changeTheme, "?": () => $("keys").showModal(),
  1: () => goTo("curves"), 2: () => goTo("peers"), 3: () => goTo("losses"), 4: () => goTo("logs"),
  s: () => { seen.order = (seen.order + 2) % (2 * shownColumns().length); drawPeers(); },
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, select")) {
    if (event.key === "Escape") { $("filter").value = seen.filter = ""; $("filter").blur(); drawPeers(); }
    return;
  }
  if ($("keys").open || !pressed[event.key]) return;
  event.preventDefault();
  pressed[event.key]();
});
$("filter").addEventListener("input", () => { seen.filter = $("filter").value; drawPeers(); });
$("level").addEventListener("change", () => { seen.level = Number($("level").value); drawLines(); });
$("pause").addEventListener("click", pause);
$("theme").addEventListener("click", changeTheme);
$("help").addEventListener("click", () => $("keys").showModal());
try { const kept = localStorage.getItem("eris-theme"); if (kept) document.documentElement.dataset.theme = kept; } catch { /* as above */ }
nameTheme();
listen();
