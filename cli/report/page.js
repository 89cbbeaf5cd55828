/* page.js - the memory of all programs of a run, over time or positions, and the table of buffers.
 *
 * The plan is as page.c writes it. Positions (`steps`) are [bytes, ms, recomputed, label, stage], those of the
 * keep-all plan (`kept`) [bytes, ms], buffers [label, type, bytes, address, first position, last position, kind].
 * A place on the horizontal axis is a number from 0 to `span`: the programs one after the other, with gaps. */
const D = JSON.parse(document.getElementById('plan').textContent);
decimal = !!D.memory.decimal;
const RECOMPUTED = 8;
const kinds = ['weights', 'gradients', 'optimizer', 'activations', 'workspace', 'inputs', 'overhead', '', 'recomputed'];
const stages = ['forward', 'backward', 'update'];
const sums = a => { const s = [0]; for (const v of a) s.push(s[s.length - 1] + v); return s; };
const P = D.programs.filter(p => p.steps.length).map((p, i) => {
    const highest = (m, s) => Math.max(m, s[0]);
    let peak = 0;
    p.steps.forEach((s, k) => { if (s[0] > p.steps[peak][0]) peak = k; });
    return {i, name: p.name, steps: p.steps, kept: p.kept, raw: p.buffers, n: p.steps.length, peak, from: 0, len: 0,
            clock: sums(p.steps.map(s => s[1])), keptClock: sums(p.kept.map(s => s[1])), keptPeak: p.kept.reduce(highest, 0)};
});
const B = P.flatMap(p => p.raw.map(b => ({p, name: D.labels[b[0]], type: b[1], bytes: b[2], at: b[3], first: b[4], last: b[5],
    kind: b[6] === 3 && p.steps[Math.min(b[4], p.n - 1)][2] ? RECOMPUTED : b[6]})));
B.forEach((b, i) => { b.i = i; });
P.forEach(p => { p.buffers = B.filter(b => b.p === p); p.band = band(p); });
const state = D.memory.weights + D.memory.optimizer, floor = D.memory.overhead + state; /* bytes drawn below the arena */
const most = P.reduce((a, b) => b.steps[b.peak][0] > a.steps[a.peak][0] ? b : a); /* the program with the highest peak */
const peakBytes = floor + most.steps[most.peak][0], keptPeak = P.reduce((m, p) => Math.max(m, p.keptPeak), 0);
/* An overhead that is most of the picture starts cut off, so that the plan can be seen. */
let cut = D.memory.overhead > .5 * peakBytes;
let byTime = true, whole = true, hot = null, prog = most, step = most.peak, waiting = 0, span = 1, view = null, drag = null;

/* Runs of one stage: [stage, first position, end]. Recomputed kernels, and a few kernels among many of another stage,
 * belong to the stage around them. */
function band(p) {
    const of = [], few = Math.max(3, Math.floor(p.n / 50)), out = [];
    p.steps.forEach((s, k) => { of.push(s[2] ? of[k - 1] || 0 : s[4]); });
    for (let from = 0, to; from < p.n; from = to) {
        for (to = from + 1; to < p.n && of[to] === of[from];) to++;
        const last = out[out.length - 1];
        if (last && (to - from < few || last[0] === of[from])) last[2] = to; else out.push([of[from], from, to]);
    }
    return out;
}

/* ---- facts and keys ---- */
$('#title').textContent = 'Memory of one training step: ' + D.name;
$('#sub').textContent = D.about;
$('#facts').innerHTML = [
    [unit(D.memory.total), 'whole process'],
    [unit(floor + keptPeak), 'keep-all plan'],
    [D.memory.budget ? unit(D.memory.budget) : 'none', 'budget', D.memory.budget && D.memory.total > D.memory.budget],
    ...(D.memory.minimum ? [[unit(D.memory.minimum), 'minimum budget']] : []),
    [time(D.step_ms), 'step time (predicted)'],
    [D.again.toFixed(1) + ' %', 'recompute'],
    [B.length.toLocaleString('en'), 'buffers, ' + P.reduce((s, p) => s + p.n, 0) + ' kernels'],
].map(f => `<div class="fact${f[2] ? ' bad' : ''}"><b>${f[0]}</b><span>${f[1]}</span></div>`).join('');
const lineKey = (colour, style, text) =>
    `<span class="key line"><i style="border-color:var(--${colour});border-top-style:${style}"></i>${text}</span>`;
const used = k => k === 0 || k === 2 || k === 6 || B.some(b => b.kind === k);
$('#keys').innerHTML =
    [3, RECOMPUTED, 1, 4, 5, 0, 2, 6].filter(used).map(k => `<span class="key"><i style="background:var(--c${k})"></i>${kinds[k]}</span>`).join('') +
    lineKey('ink', 'solid', 'bytes alive') + lineKey('kept', 'dashed', 'keep-all plan') +
    (D.memory.budget ? lineKey('budget', 'dashed', 'budget') : '') +
    '<span class="seg"><button id="bt">time</button><button id="bs">positions</button>' +
    '<button id="bw">keep-all</button><button id="bp">planned</button>' +
    '<button id="bo">overhead</button>' +
    '<button id="zi" aria-label="zoom in">+</button><button id="zo" aria-label="zoom out">&minus;</button>' +
    '<button id="zr">reset zoom</button></span>';

/* ---- places ---- */
const cv = $('#plot canvas'), cx = cv.getContext('2d'), sv = $('#plot svg'), box = $('#plot');
const L = 66, R = 14, T = 46; /* margins; the one below depends on the names of the programs */
let W = 0, H = 0, M = 80, ink = {};
const inside = () => Math.max(W - L - R, 40);
const tall = () => Math.max(H - T - M, 40);
const place = (p, i) => p.from + (byTime ? p.clock[i] : i);
const keptPlace = (p, i) => p.from + (byTime ? p.keptClock[i] : i);
const across = v => L + (v - view.a) / (view.b - view.a) * inside();
const x = (p, i) => across(place(p, i));
const y = b => H - M - (b - view.lo) / (view.hi - view.lo) * tall();
const top_ = b => floor + b.at + b.bytes;

/* Everything: all programs, from 0 to the highest line that is drawn; of an overhead that is cut off, a strip. */
function home() {
    const top = Math.max(peakBytes, D.memory.total, whole ? floor + keptPeak : 0), low = cut ? D.memory.overhead : 0;
    const hi = D.memory.budget > top && D.memory.budget - low < 1.6 * (top - low) ? D.memory.budget : top;
    return {a: 0, b: span, lo: cut ? Math.max(0, low - .06 * (hi - low)) : 0, hi: hi + .05 * (hi - low)};
}

function lay() {
    let at = 0;
    for (const p of P) p.len = Math.max(byTime ? p.clock[p.n] : p.n, whole ? byTime ? p.keptClock[p.kept.length] : p.kept.length : 0) || 1;
    const gap = .012 * P.reduce((s, p) => s + p.len, 0);
    for (const p of P) { p.from = at; at += p.len + gap; }
    span = at - gap;
    view = home();
}

function zoom(v) {
    const h = home(), least = span / 1e5;
    let w = clamp(v.b - v.a, least, span), t = clamp(v.hi - v.lo, h.hi / 1e4, h.hi - h.lo);
    const a = clamp(v.a, 0, span - w), lo = clamp(v.lo, h.lo, h.hi - t);
    view = {a, b: a + w, lo, hi: lo + t};
    redraw();
}
const zoomBy = (by, at) => zoom({...view, a: at - (at - view.a) * by, b: at + (view.b - at) * by});
const here = () => place(prog, step + .5 | 0);
/* Moves the view so that a position is in it. */
function follow(p, s) {
    const w = view.b - view.a, v = place(p, s), e = place(p, s + 1);
    if (v < view.a || e > view.b) zoom({...view, a: v - w / 2, b: v + w / 2});
}

function colours() {
    const s = getComputedStyle(document.documentElement);
    for (let k = 0; k < 9; k++) ink[k] = s.getPropertyValue('--c' + k).trim();
    for (const k of ['card', 'ink', 'accent']) ink[k] = s.getPropertyValue('--' + k).trim();
}

/* ---- the picture: buffers on the canvas, lines and words over it ---- */
function paintProgram(p) {
    const m = D.memory, left = x(p, 0), right = x(p, p.n);
    if (right < L || left > W - R) return;
    for (const [at, bytes, k] of [[0, m.overhead, 6], [m.overhead, m.weights, 0], [m.overhead + m.weights, m.optimizer, 2]]) {
        cx.fillStyle = ink[k];
        cx.fillRect(left, y(at + bytes), right - left, y(at) - y(at + bytes));
    }
    for (const b of p.buffers) {
        const l = x(p, b.first), w = x(p, b.last) - l, t = y(top_(b)), h = y(floor + b.at) - t;
        if (h < .12 || l > W || l + w < L || t > H || t + h < 0) continue;
        cx.fillStyle = ink[b.kind];
        cx.globalAlpha = (hot && hot !== b ? .4 : .74) + .26 * (b.i * .618034 % 1); /* neighbours differ */
        cx.fillRect(l, t, Math.max(w, .6), h);
        if (w < 3 || h < 3) continue;
        cx.globalAlpha = .55;
        cx.strokeStyle = ink.card;
        cx.lineWidth = .8;
        cx.strokeRect(l, t, w, h);
    }
    cx.globalAlpha = 1;
}

function paint() {
    const d = window.devicePixelRatio || 1;
    waiting = 0;
    W = box.clientWidth;
    H = box.clientHeight;
    const names = layNames();
    M = 48 + 17 * (1 + Math.max(0, ...names.map(n => n.line)));
    cv.width = W * d;
    cv.height = H * d;
    cx.setTransform(d, 0, 0, d, 0, 0);
    cx.save();
    cx.beginPath();
    cx.rect(L, T, inside(), tall());
    cx.clip();
    P.forEach(paintProgram);
    if (hot) {
        cx.strokeStyle = ink.ink;
        cx.lineWidth = 2;
        cx.strokeRect(x(hot.p, hot.first), y(top_(hot)), Math.max(x(hot.p, hot.last) - x(hot.p, hot.first), 2),
                      Math.max(y(floor + hot.at) - y(top_(hot)), 2));
    }
    if (drag && drag.box) {
        cx.fillStyle = cx.strokeStyle = ink.accent;
        cx.globalAlpha = .18;
        cx.fillRect(...drag.box);
        cx.globalAlpha = 1;
        cx.lineWidth = 1;
        cx.strokeRect(...drag.box);
    }
    cx.restore();
    frame(names);
}
const redraw = () => { if (!waiting) waiting = requestAnimationFrame(paint); };

/* Names of the programs that are in view, each on the first line where it meets no other. */
function layNames() {
    const ends = [];
    cx.font = '600 12px system-ui,sans-serif';
    return P.filter(p => p.from < view.b && p.from + p.len > view.a).map(p => {
        const text = W < 560 ? p.name : `${p.name}: ${p.n.toLocaleString('en')} kernels, ${time(p.clock[p.n])}, peak ${unit(floor + p.steps[p.peak][0])}`;
        const mid = (across(Math.max(p.from, view.a)) + across(Math.min(p.from + p.len, view.b))) / 2, w = cx.measureText(text).width;
        const at = clamp(mid - w / 2, L, Math.max(L, W - R - w));
        let line = 0;
        while (ends[line] > at - 14) line++;
        ends[line] = at + w;
        return {text, at, mid, line};
    });
}

function el(name, at, text) {
    const e = document.createElementNS(NS, name);
    for (const k in at) e.setAttribute(k, at[k]);
    if (text !== undefined) e.textContent = text;
    sv.appendChild(e);
}

/* A line through the bytes of every position. */
function outline(rows, at) {
    return rows.map((s, i) => {
        const h = y(floor + s[0]).toFixed(1);
        return `${i ? 'L' : 'M'}${at(i).toFixed(1)} ${h}L${at(i + 1).toFixed(1)} ${h}`;
    }).join('');
}

function stageBand(p) {
    cx.font = '12px system-ui,sans-serif';
    for (const [stage, from, to] of p.band) {
        const l = Math.max(L, x(p, from)), r = Math.min(W - R, x(p, to));
        if (r <= l) continue;
        if (from && x(p, from) > L) el('line', {x1: l, x2: l, y1: T, y2: H - M, stroke: 'var(--soft)', 'stroke-dasharray': '2 3'});
        el('rect', {x: l, y: H - M + 2, width: r - l, height: 16, fill: `var(--s${stage})`});
        if (r - l > cx.measureText(stages[stage]).width + 8) el('text', {x: l + 4, y: H - M + 14, style: 'fill:var(--ink);font-size:11px'}, stages[stage]);
    }
    for (let k = 0; k < p.n; k++) {
        const from = k;
        while (k < p.n && p.steps[k][2]) k++;
        const l = Math.max(L, x(p, from)), r = Math.min(W - R, x(p, k));
        if (k > from && r > l) el('rect', {x: l, y: H - M + 19, width: Math.max(r - l, .8), height: 4, fill: `var(--c${RECOMPUTED})`});
    }
}

function axisOf(p) {
    const lo = Math.max(view.a, p.from) - p.from, hi = Math.min(view.b, p.from + p.len) - p.from;
    if (hi <= lo) return;
    cx.font = '12px system-ui,sans-serif';
    const px = (hi - lo) / (view.b - view.a) * inside(), n = Math.max(1, Math.floor(px / (W < 560 ? 60 : 76)));
    const ticks = byTime ? timeTicks(lo, hi, n) : multiples(lo, hi, Math.max(1, roundStep(hi - lo, n))).map(v => [v, v.toLocaleString('en')]);
    let end = -1e9;
    for (const [v, text] of ticks) {
        const at = across(p.from + v), w = cx.measureText(text).width, l = v ? clamp(at - w / 2, L, W - R - w) : at;
        if (l < end + 8 || l + w > across(p.from + hi) + 8) continue;
        el('line', {x1: at, x2: at, y1: H - M, y2: H - M + 26, stroke: 'var(--line)'});
        el('text', {x: l, y: H - M + 38}, text);
        end = l + w;
    }
}

function labels() {
    const m = D.memory;
    if (m.budget) {
        const h = y(m.budget), seen = h >= T && h <= H - M;
        if (seen) el('line', {x1: L, x2: W - R, y1: h, y2: h, stroke: 'var(--budget)', 'stroke-width': 1.6, 'stroke-dasharray': '7 4'});
        el('line', {x1: L, x2: L + 26, y1: 10, y2: 10, stroke: 'var(--budget)', 'stroke-width': 1.6, 'stroke-dasharray': '7 4'});
        el('text', {x: L + 32, y: 14, style: 'fill:var(--budget);font-weight:600', class: 'budget'},
           'budget ' + unit(m.budget) + (h < T ? ', above this picture' : h > H - M ? ', below this picture' : ''));
    }
    const px = (x(most, most.peak) + x(most, most.peak + 1)) / 2, py = y(peakBytes);
    if (px < L || px > W - R || py > H - M) return;
    const far = px > (W + L) / 2, room = far ? px - 12 : W - px - 12;
    const name = `peak ${unit(peakBytes)} at position ${most.peak + 1}`, long_ = `${name} of ${most.name}: ${D.labels[most.steps[most.peak][3]]}`;
    cx.font = '600 12px system-ui,sans-serif';
    const text = [long_, name, 'peak ' + unit(peakBytes)].find(t => cx.measureText(t).width < room) || '';
    cx.font = '12px system-ui,sans-serif';
    el('line', {x1: px, x2: px, y1: Math.max(py - 5, T - 6), y2: T - 20, stroke: 'var(--ink)'});
    if (py >= T - 6) el('circle', {cx: px, cy: py, r: 4, fill: 'var(--card)', stroke: 'var(--ink)', 'stroke-width': 1.6});
    el('text', {x: px + (far ? -7 : 7), y: T - 13, 'text-anchor': far ? 'end' : 'start', class: 'strong peak'}, text);
}

function frame(names) {
    sv.textContent = '';
    sv.setAttribute('viewBox', `0 0 ${W} ${H}`);
    el('title', {}, 'Memory of one training step');
    const clip = document.createElementNS(NS, 'clipPath');
    clip.id = 'inside';
    sv.appendChild(clip);
    const area = document.createElementNS(NS, 'rect');
    for (const [k, v] of [['x', L], ['y', T], ['width', inside()], ['height', tall()]]) area.setAttribute(k, v);
    clip.appendChild(area);
    for (const [v, text] of byteTicks(view.lo, view.hi, Math.max(4, Math.floor(tall() / 34)))) {
        el('line', {x1: L, x2: W - R, y1: y(v), y2: y(v), stroke: 'var(--line)', 'stroke-opacity': v ? .55 : 1});
        el('text', {x: L - 8, y: y(v) + 4, 'text-anchor': 'end'}, text);
    }
    for (const p of P) {
        axisOf(p);
        stageBand(p);
        if (whole)
            el('path', {d: outline(p.kept, i => across(keptPlace(p, i))), fill: 'none', stroke: 'var(--kept)', 'stroke-width': 1.5,
                        'stroke-dasharray': '5 3', 'clip-path': 'url(#inside)'});
        el('path', {d: outline(p.steps, i => x(p, i)), fill: 'none', stroke: 'var(--ink)', 'stroke-width': 1.1, 'stroke-opacity': .75,
                    'clip-path': 'url(#inside)'});
    }
    for (const n of names) el('text', {x: n.at, y: H - M + 56 + 17 * n.line, class: 'strong'}, n.text);
    labels();
    const sx = (x(prog, step) + x(prog, step + 1)) / 2;
    if ((hot || document.activeElement === cv) && sx >= L && sx <= W - R)
        el('line', {x1: sx, x2: sx, y1: T, y2: H - M, stroke: 'var(--accent)', 'stroke-opacity': .8});
}

/* ---- pointing ---- */
const valueAt = px => view.a + (px - L) / inside() * (view.b - view.a);

/* The program and position at a place, or null between programs. */
function stepAt(px) {
    const v = valueAt(px), p = P.find(q => v >= q.from && v < place(q, q.n));
    if (!p || px < L || px > W - R) return null;
    let lo = 0, hi = p.n;
    while (hi - lo > 1) {
        const m = lo + hi >> 1;
        if (place(p, m) <= v) lo = m; else hi = m;
    }
    return [p, lo];
}

function bufferAt(p, s, py) {
    const v = view.lo + (H - M - py) / tall() * (view.hi - view.lo) - floor;
    return p.buffers.find(b => b.first <= s && s < b.last && b.at <= v && v < b.at + b.bytes) || null;
}

const alive = (p, s) => p.buffers.filter(b => b.first <= s && s < b.last).sort((a, b) => a.at - b.at);
const lines = b => [`<b>${esc(b.name)}</b> ${esc(b.type)}`,
                    `${unit(b.bytes)} of ${kinds[b.kind]}, ${esc(b.p.name)}, positions ${b.first + 1} to ${b.last}, ` +
                        time(b.p.clock[Math.min(b.last, b.p.n)] - b.p.clock[Math.min(b.first, b.p.n)]),
                    `at ${b.at.toLocaleString('en')}`];
const about = (p, s) => `Position ${s + 1} of ${p.n} of ${esc(p.name)}: <b>${esc(D.labels[p.steps[s][3]])}</b>, ${stages[p.steps[s][4]]}` +
    `${p.steps[s][2] ? ', recomputed' : ''}, ${time(p.steps[s][1])}, ${unit(floor + p.steps[s][0])} in total`;

/* Shows buffer b (may be null) and position s of a program in the picture and in the line below it. */
function choose(b, p, s, scroll) {
    hot = b;
    prog = p;
    step = s;
    $('#said').innerHTML = about(p, s) + (b ? '. ' + lines(b).join(', ') : '');
    document.querySelectorAll('#rows tr.on').forEach(r => r.classList.remove('on'));
    const row = b && scroll && document.getElementById('b' + b.i);
    if (row) {
        row.classList.add('on');
        $('.scroll:has(#rows)').scrollTop = row.offsetTop - 80; /* the page itself stays where it is */
    }
    redraw();
}

function hover(px, py) {
    const tip = $('#tip'), found = stepAt(px);
    tip.style.visibility = found && !drag ? 'visible' : 'hidden';
    if (!found) return;
    const [p, s] = found, b = bufferAt(p, s, py);
    if (b !== hot || s !== step || p !== prog) choose(b, p, s, false);
    tip.innerHTML = b ? lines(b).join('<br>') : about(p, s);
    tip.style.left = clamp(px + 14, 0, W - tip.offsetWidth - 4) + 'px';
    tip.style.top = (py + tip.offsetHeight + 24 > H ? py - tip.offsetHeight - 12 : py + 16) + 'px';
}

const local = e => { const r = cv.getBoundingClientRect(); return [e.clientX - r.left, e.clientY - r.top]; };
cv.addEventListener('pointerdown', e => {
    const [px, py] = local(e);
    if (e.button > 1 || px < L || px > W - R) return;
    drag = {px, py, view, pan: e.shiftKey || e.button === 1, box: null};
    cv.setPointerCapture(e.pointerId);
});
cv.addEventListener('pointermove', e => {
    const [px, py] = local(e);
    if (drag && drag.pan) {
        const dx = (px - drag.px) / inside() * (view.b - view.a), dy = (py - drag.py) / tall() * (view.hi - view.lo), v = drag.view;
        zoom({a: v.a - dx, b: v.b - dx, lo: v.lo + dy, hi: v.hi + dy});
    } else if (drag && Math.abs(px - drag.px) > 4) {
        /* a flat box is a range of time; a taller one is a part of the memory too */
        const high = Math.abs(py - drag.py) > 24, l = clamp(Math.min(px, drag.px), L, W - R), r = clamp(Math.max(px, drag.px), L, W - R);
        drag.box = [l, high ? clamp(Math.min(py, drag.py), T, H - M) : T, r - l, high ? Math.abs(clamp(py, T, H - M) - clamp(drag.py, T, H - M)) : tall()];
        redraw();
    }
    hover(px, py);
});
function drop() {
    const done = drag && drag.box;
    drag = null;
    if (!done) return;
    const [l, t, w, h] = done, per = (view.hi - view.lo) / tall();
    zoom({a: valueAt(l), b: valueAt(l + w), lo: view.lo + (H - M - t - h) * per, hi: view.lo + (H - M - t) * per});
}
cv.addEventListener('pointerup', drop);
cv.addEventListener('pointercancel', () => { drag = null; redraw(); });
/* The wheel zooms, except while it scrolls the page past the picture, and out of what is not zoomed. */
let scrolled = -1e9;
addEventListener('scroll', () => { scrolled = performance.now(); }, {passive: true});
cv.addEventListener('wheel', e => {
    const [px] = local(e), out = e.deltaY > 0, h = home();
    if (performance.now() - scrolled < 250 || px < L || (out && view.b - view.a >= h.b * .999 && view.hi - view.lo >= (h.hi - h.lo) * .999)) return;
    e.preventDefault();
    if (out && view.b - view.a >= h.b * .999) zoom(h); else zoomBy(Math.pow(1.0015, clamp(e.deltaY, -300, 300)), valueAt(px));
}, {passive: false});
cv.addEventListener('dblclick', () => zoom(home()));
cv.addEventListener('mouseleave', () => {
    $('#tip').style.visibility = 'hidden';
    hot = null;
    redraw();
});
cv.addEventListener('click', () => { if (hot) choose(hot, prog, step, true); });
cv.addEventListener('focus', () => choose(hot, prog, step, false));
cv.addEventListener('blur', redraw);

/* Goes `by` positions on, into the next program at an end. */
function move(by) {
    let p = prog, s = step + by;
    while (s < 0 && P[p.i - 1]) { p = P[p.i - 1]; s += p.n; }
    while (s >= p.n && P[p.i + 1]) { s -= p.n; p = P[p.i + 1]; }
    s = clamp(s, 0, p.n - 1);
    choose(hot && hot.p === p && hot.first <= s && s < hot.last ? hot : null, p, s, true);
    follow(p, s);
}

function zoomTo(b) {
    if (!b) return;
    const l = place(b.p, b.first), w = place(b.p, Math.min(b.last, b.p.n)) - l, lo = floor + b.at;
    zoom({a: l - w / 2, b: l + 1.5 * w, lo: lo - b.bytes, hi: lo + 2 * b.bytes});
}

cv.addEventListener('keydown', e => {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const by = e.shiftKey ? 10 : 1, a = alive(prog, step), at = a.indexOf(hot);
    const go = (p, s) => { choose(null, p, s, true); follow(p, s); };
    const moves = {
        ArrowLeft: () => move(-by),
        ArrowRight: () => move(by),
        ArrowUp: () => choose(a[Math.min(a.length - 1, at + 1)] || null, prog, step, true),
        ArrowDown: () => choose(a[at < 0 ? a.length - 1 : Math.max(0, at - 1)] || null, prog, step, true),
        p: () => go(most, most.peak),
        Home: () => go(P[0], 0),
        End: () => go(P[P.length - 1], P[P.length - 1].n - 1),
        Escape: () => choose(null, prog, step, true),
        '+': () => zoomBy(.5, here()),
        '=': () => zoomBy(.5, here()),
        '-': () => zoomBy(2, here()),
        0: () => zoom(home()),
        z: () => zoomTo(hot),
    };
    if (!moves[e.key]) return;
    moves[e.key]();
    e.preventDefault();
});

/* ---- the table ---- */
const columns = [['buffer', 'name'], ['kind', 'kind'], ['shape', 'type'], ['bytes', 'bytes', 1],
                 ['first position', 'first', 1], ['last position', 'last', 1], ['address', 'at', 1]].concat(P.length > 1 ? [['program', 'program']] : []);
const SHOWN = 200;
let sortBy = 'bytes', down = true;
$('#head').innerHTML = columns.map(c => `<th class="${c[2] ? 'n' : ''}"><button data-k="${c[1]}">${c[0]}</button></th>`).join('');
const sortKey = b => sortBy === 'program' ? b.p.i : sortBy === 'kind' ? kinds[b.kind] : b[sortBy];

function list() {
    const words = $('#find').value.toLowerCase().split(/\s+/).filter(Boolean);
    const hits = B.filter(b => {
        const text = `${b.name} ${kinds[b.kind]} ${b.type} ${b.p.name}`.toLowerCase();
        return words.every(w => text.includes(w));
    });
    hits.sort((a, b) => (sortKey(a) < sortKey(b) ? -1 : sortKey(a) > sortKey(b) ? 1 : a.i - b.i) * (down ? -1 : 1));
    $('#count').textContent = `${hits.length.toLocaleString('en')} of ${B.length.toLocaleString('en')} buffers, ` +
        unit(hits.reduce((s, b) => s + b.bytes, 0)) + (hits.length > SHOWN ? `; the first ${SHOWN} are listed` : '');
    $('#rows').innerHTML = hits.slice(0, SHOWN).map(b =>
        `<tr tabindex="0" id="b${b.i}"><td><i style="background:var(--c${b.kind})"></i>${esc(b.name)}</td>` +
        `<td>${kinds[b.kind]}</td><td>${esc(b.type)}</td><td class="n">${unit(b.bytes)}</td>` +
        `<td class="n">${b.first + 1}</td><td class="n">${b.last}</td><td class="n">${b.at.toLocaleString('en')}</td>` +
        (P.length > 1 ? `<td>${esc(b.p.name)}</td>` : '') + '</tr>').join('');
    document.querySelectorAll('#head th').forEach((h, i) =>
        h.setAttribute('aria-sort', columns[i][1] !== sortBy ? 'none' : down ? 'descending' : 'ascending'));
}

$('#head').addEventListener('click', e => {
    const k = e.target.dataset.k;
    if (!k) return;
    down = k === sortBy ? !down : k === 'bytes';
    sortBy = k;
    list();
});
function pick(e) {
    const row = e.target.closest('tr'), b = row && B[+row.id.slice(1)];
    if (b) choose(b, b.p, Math.min(b.first, b.p.n - 1), false);
}
$('#rows').addEventListener('mouseover', pick);
$('#rows').addEventListener('focusin', pick);
$('#find').addEventListener('input', list);

/* ---- switches ---- */
function press(time_, whole_) {
    byTime = time_;
    whole = whole_;
    for (const [id, on] of [['#bt', byTime], ['#bs', !byTime], ['#bw', whole], ['#bp', !whole], ['#bo', !cut]])
        $(id).setAttribute('aria-pressed', on);
    if ($('#cut')) $('#cut').textContent = cut ? ` Most of the overhead, ${unit(D.memory.overhead)}, is cut off below.` : '';
    lay();
    redraw();
}
$('#bt').onclick = () => press(true, whole);
$('#bs').onclick = () => press(false, whole);
$('#bw').onclick = () => press(byTime, true);
$('#bp').onclick = () => press(byTime, false);
$('#bo').onclick = () => { cut = !cut; press(byTime, whole); };
$('#zi').onclick = () => zoomBy(.5, clamp(here(), view.a, view.b));
$('#zo').onclick = () => zoomBy(2, (view.a + view.b) / 2);
$('#zr').onclick = () => zoom(home());
addEventListener('resize', redraw);
matchMedia('(prefers-color-scheme:dark)').addEventListener('change', () => {
    colours();
    redraw();
});
colours();
press(true, true);
list();
$('#said').innerHTML = about(most, most.peak);
