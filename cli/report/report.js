/* report.js - the measurements of a run, around the picture of page.js; and, in `plimsoll watch`, kept up to date.
 *
 * R is what report_run_json (report_html.c) writes. Rows are [step, loss, lr, gradient norm, ms, ms of waiting, bytes],
 * each the mean of `stride` steps (bytes: their maximum). Terms of the loss are {name, points}, points as [step, value]. A block keeps its names apart from those of page.js. */
{
let R = JSON.parse(document.getElementById('run').textContent);
const live = Boolean(R.live);

/* ---- frame of the page ---- */
document.title = (live ? 'Watching: ' : 'Report: ') + D.name;
$('#title').textContent = (live ? 'Watching: ' : 'Training report: ') + D.name;
$('#sub').textContent = `${D.about}. ${D.machine || D.device}.`;
const put = (id, before) => before.before(document.getElementById(id).content.cloneNode(true));
const plot = $('#plot').closest('.card');
if (live) put('live', $('#facts'));
put('report', plot);
put('tables', [...document.querySelectorAll('h2')].find(h => h.textContent === 'Buffers'));
const end = document.createElement('details');
$('footer').before(end);

const col = c => R.rows.filter(r => r[c] !== null).map(r => [r[0], r[c]]);
const total = c => R.rows.reduce((s, r) => s + (r[c] || 0), 0);
const stepMs = () => R.rows.length ? total(4) / R.rows.length : 0;

function facts() {
    const wait = total(4) ? 100 * total(5) / total(4) : 0, last = col(1).slice(-1)[0], budget = D.memory.budget;
    const grown = R.used[1] - R.used[0];
    $('#facts').innerHTML = [
        [R.steps.toLocaleString('en'), R.end ? 'steps, finished' : 'steps so far'],
        [last ? short(last[1]) : 'none', R.end ? 'loss at the end' : 'loss'],
        [unit(R.used[2]), 'peak memory, measured', budget && R.used[2] > budget],
        [unit(D.memory.total), 'peak memory, planned'],
        [unit(floor + keptPeak), 'keep-all plan'],
        [budget ? unit(budget) : 'none', 'budget'],
        [time(stepMs()), `step time (predicted ${time(D.step_ms)})`],
        [wait.toFixed(1) + ' %', 'waiting for data'],
        [(grown < 0 ? '-' : '+') + unit(Math.abs(grown)), 'memory growth since step 10'],
    ].map(f => `<div class="fact${f[2] ? ' bad' : ''}"><b>${f[0]}</b><span>${f[1]}</span></div>`).join('');
}

/* ---- curves ---- */
const charts = new Map();
function chart(title, points, colour, o = {}) {
    if (!points.length) return;
    const series = [{name: title, points, colour}], key = (o.host ? 'term ' : '') + title;
    if (charts.has(key)) charts.get(key).set(series, o.lines);
    else charts.set(key, new Chart({host: $('#charts'), title, series, ...o}));
}

/* Terms of the loss: a chart each. Constant terms are listed instead. A term that changes later gets its chart then. */
function terms() {
    const constant = [];
    let shown = 0;
    R.terms.forEach((t, i) => {
        const v = t.points.map(p => p[1]), drawn = charts.has('term ' + t.name) || v.length === 1 || v.some(k => k !== v[0]);
        shown += drawn;
        if (drawn) chart(t.name, t.points, ['c0', 'c1', 'c2', 'c5', 'c8'][i % 5], {host: $('#terms .grid2'), tools: true});
        else if (v.length) constant.push(`${t.name} ${short(v[0])}`);
    });
    $('#terms').hidden = !shown;
    $('#constant').textContent = constant.length ? `Constant: ${constant.join(', ')}.` : '';
}

/* A budget that the plan uses up is one line with one label: two would lie on each other. */
function memoryLines(m) {
    if (!m.budget || m.budget >= 1.6 * m.total) return [[m.total, 'c2', 'planned ' + unit(m.total)]];
    if (Math.abs(m.budget - m.total) < .02 * m.budget && unit(m.budget) === unit(m.total))
        return [[m.budget, 'budget', 'planned = budget ' + unit(m.budget)]];
    return [[m.total, 'c2', 'planned ' + unit(m.total)], [m.budget, 'budget', 'budget ' + unit(m.budget)]];
}

function curves() {
    const m = D.memory, speed = R.rows.filter(r => r[4] > 0);
    chart('Loss', col(1), 'c0', {wide: true, tools: true});
    chart('Memory of the process', col(6), 'c3', {bytes: true, zero: true, show: unit,
          lines: memoryLines(m)});
    chart('Steps per second', speed.map(r => [r[0], 1000 / r[4]]), 'c2', {zero: true, tools: true});
    chart('Waiting for data, % of a step', speed.map(r => [r[0], 100 * r[5] / r[4]]), 'c4', {zero: true, tools: true});
    const metrics = R.evals.length ? Object.keys(R.evals[R.evals.length - 1]).filter(k => k !== 'step') : [];
    for (const k of metrics) {
        const points = R.evals.filter(e => typeof e[k] === 'number').map(e => [e.step, e[k]]);
        if (points.length < 2 || points.some(p => p[1] !== points[0][1])) /* a constant metric is not drawn */
            chart('Evaluation: ' + k, points, 'c5', {dots: true});
    }
    terms();
    chart('Gradient norm', col(3), 'c1', {tools: true});
    chart('Learning rate', col(2), 'c7', {zero: true});
}

/* A sample is embedded in a report; `watch` serves the file. */
function samples() {
    if (!R.samples.length) return;
    $('#samples').hidden = false;
    const html = R.samples.map(s => `<figure><img src="${s.file ? esc(s.file) : 'data:image/png;base64,' + s.png}" ` +
        `alt="${esc(s.name)} at step ${s.step}"><figcaption>${esc(s.name)}, step ${s.step.toLocaleString('en')}</figcaption></figure>`).join('');
    const box = $('#samples .pictures');
    if (box.dataset.shown !== html) box.innerHTML = box.dataset.shown = html;
}

/* ---- tables ---- */
const table = (id, head, body) => {
    $(id).innerHTML = `<thead><tr>${head.map((h, i) => `<th class="${i ? 'n' : ''}">${h}</th>`).join('')}</tr></thead><tbody>${body.join('')}</tbody>`;
};

/* Memory below the device: a lane for each channel, with the times at which it moves tensors. */
function levels() {
    if (!D.channels) return;
    const lanes = D.lanes || [], several = new Set(lanes.map(l => l[0])).size > 1;
    const strip = l => `<span class="lane" role="img" aria-label="${esc(D.channels[l[2]][0])}, busy">` + l[3].map(s =>
        `<i style="left:${100 * s[0] / l[1]}%;width:${Math.max(.2, 100 * (s[1] - s[0]) / l[1])}%"></i>`).join('') + '</span>';
    $('#below').hidden = false;
    $('#belownote').textContent = `${unit(D.host_bytes)} in host memory, ${unit(D.disk_bytes)} on disk; kernels wait ` +
        `${time(D.wait_ms)} of each step for moves. A lane is one run of a program, from left to right.`;
    table('#lanes', ['channel', 'moved each step', 'busy', 'predicted times of moves'], D.channels.flatMap((c, k) =>
        c[1] > 0 ? [`<tr><td>${esc(c[0])}</td><td class="n">${unit(c[1])}</td><td class="n">${time(c[2])}</td><td>` +
            lanes.filter(l => l[2] === k).map(l => (several ? esc(l[0]) : '') + strip(l)).join('') + '</td></tr>'] : []));
}

function tables() {
    const m = D.memory, planned = D.parts.reduce((s, p) => s + p[2], 0), kept = D.parts.reduce((s, p) => s + p[1], 0);
    const gaps = m.total - m.overhead - planned, largest = Math.max(kept, planned) || 1;
    const partRow = (name, a, b, k) => `<tr><td>${k < 0 ? '' : `<i style="background:var(--c${k})"></i>`}${name}` +
        (k < 0 ? '' : `<span class="meter"><i style="width:${100 * b / largest}%;background:var(--c${k})"></i></span>`) +
        `</td><td class="n">${a === null ? '' : unit(a)}</td><td class="n">${unit(b)}</td></tr>`;
    table('#parts', ['', 'keep-all', 'planned'],
          D.parts.map(p => partRow(p[0], p[1], p[2], kinds.indexOf(p[0]))).concat(
              gaps > 0 ? [partRow('gaps between buffers', null, gaps, -1)] : [], [partRow('overhead', m.overhead, m.overhead, 6)],
              `<tr class="sum"><td>whole process</td><td class="n">${unit(kept + m.overhead)}</td><td class="n">${unit(m.total)}</td></tr>`,
              `<tr><td>measured peak</td><td></td><td class="n">${unit(R.used[2])}</td></tr>`));
    table('#means', ['optimisation', 'arena', 'change', 'step time'], D.means.map((r, i) => {
        const before = i ? D.means[i - 1] : r, saved = before[1] - r[1], later = r[2] - before[2];
        if (i && !saved && !later) return '';
        return `<tr><td>${esc(r[0])}</td><td class="n">${unit(r[1])}</td><td class="n ${saved > 0 ? 'saved' : ''}">` +
            `${saved ? (saved > 0 ? '-' : '+') + unit(Math.abs(saved)) : ''}</td>` +
            `<td class="n">${i ? later ? (later < 0 ? '-' : '+') + time(Math.abs(later)) : '' : time(r[2])}</td></tr>`;
    }));
    const at = alive(most, most.peak).sort((a, b) => b.bytes - a.bytes), listed = at.slice(0, 12);
    $('#peaknote').textContent = `Position ${most.peak + 1} of ${most.n} of ${most.name}, ${D.labels[most.steps[most.peak][3]]}: ${at.length} buffers, ` +
        `${unit(at.reduce((s, b) => s + b.bytes, 0))}` + (listed.length < at.length ? `; the ${listed.length} largest.` : '.');
    table('#alive', ['buffer', 'shape', 'bytes', 'positions'], listed.map(b =>
        `<tr><td><i style="background:var(--c${b.kind})"></i>${esc(b.name)}</td><td class="n">${esc(b.type)}</td>` +
        `<td class="n">${unit(b.bytes)}</td><td class="n">${b.first + 1} to ${b.last}</td></tr>`));
    end.innerHTML = `<summary>Configuration</summary><pre tabindex="0">${esc(R.config)}</pre>`;
}

function show() {
    facts();
    curves();
    samples();
    $('footer').textContent = `Plimsoll ${D.version}; ${D.device}: ${D.machine}. Run folder ${R.folder}, ${R.checkpoints} ${R.checkpoints === 1 ? 'checkpoint' : 'checkpoints'}` +
        (R.end ? `, ${seconds(R.end.wall_s)} in total` : live ? '' : ', running or stopped') +
        (R.stride > 1 ? `; each point of a curve is the mean of ${R.stride} steps` : '') +
        '. Planned memory is exact; times of the plan are predicted; everything else is measured.';
}
show();
levels();
tables();
redraw();

/* ---- watching ---- */
const names = {running: 'running', ended: 'finished', stopped: 'stopped', failed: 'failed', stalled: 'stalled', gone: 'no connection'};

/* One event of the log as a line. */
function lineOf(e) {
    const skip = new Set(['event', 'step', 'path', 'arena_bytes', 'phase']);
    const number = (k, v) => k.endsWith('_bytes') ? unit(v) : k.endsWith('_ms') ? time(v) : k === 'wall_s' ? seconds(v) : short(v);
    const {terms, ...rest} = e, members = Object.entries(rest).concat(Object.entries(terms || {}).filter(([k]) => !(k in rest)));
    return `${e.event}${e.phase ? ' ' + e.phase : ''}${e.step === undefined ? '' : ' ' + e.step}  ` + members.filter(([k]) => !skip.has(k)).map(
        ([k, v]) => `${k.replace(/_(bytes|ms|s)$/, '')} ${typeof v === 'number' ? number(k, v) : v}`).join('  ');
}

function showState(state, text) {
    $('#state').classList.toggle('bad', ['failed', 'stalled', 'gone'].includes(state));
    $('#state b').textContent = names[state] || state;
    $('#state span').textContent = text;
    document.title = `${names[state] || state}: ${D.name}`;
}

function showLive() {
    const v = R.live, share = v.last_step ? clamp(R.steps / v.last_step, 0, 1) : 0, left = (v.last_step - R.steps) * stepMs() / 1000;
    const parts = [v.last_step ? `step ${R.steps.toLocaleString('en')} of ${v.last_step.toLocaleString('en')} (${(100 * share).toFixed(1)} %)` : `step ${R.steps}`];
    if (v.phase) parts.push('phase ' + v.phase);
    if (v.state === 'running' && left > 0) parts.push('about ' + seconds(left) + ' left');
    if (v.state === 'stalled') parts.push(`nothing new for ${seconds(v.quiet_s)}; ${v.alive === false ? 'the process is gone' : 'the process may hang'}`);
    if (v.message) parts.push(v.message);
    showState(v.state, parts.join(', '));
    $('#progress i').style.width = 100 * share + '%';
    $('#progress').setAttribute('aria-valuenow', Math.round(100 * share));
    const log = $('#log'), text = v.tail.map(lineOf).join('\n'), stays = log.scrollTop + log.clientHeight < log.scrollHeight - 4;
    if (log.textContent === text) return;
    log.textContent = text;
    if (!stays) log.scrollTop = log.scrollHeight;
}

async function poll() {
    let next = 2000;
    try {
        const answer = await fetch(`run.json?seen=${R.live.seen}`, {cache: 'no-store'});
        if (!answer.ok) throw new Error(answer.status);
        const now = await answer.json();
        if (now.live.plan !== R.live.plan) { location.reload(); return; } /* another plan: a phase, or a new run */
        if (now.rows) R = now; else R.live = now.live;
        if (now.rows) show();
        showLive();
        if (['ended', 'failed', 'stopped'].includes(R.live.state)) next = 10000;
    } catch (e) {
        showState('gone', 'plimsoll watch does not answer; the curves are those of its last answer');
        next = 5000;
    }
    setTimeout(poll, document.hidden ? Math.max(next, 10000) : next);
}
if (live) {
    showLive();
    setTimeout(poll, 1000);
}
}
