'use strict';
/* page_common.js - used by every page: numbers as text, round ticks, small helpers. */
const $ = q => document.querySelector(q), NS = 'http://www.w3.org/2000/svg';
const UNITS = [['B', 'KiB', 'MiB', 'GiB', 'TiB'], ['B', 'kB', 'MB', 'GB', 'TB']];
let decimal = false; /* the budget was typed in GB */

function unit(b) {
    const base = decimal ? 1000 : 1024;
    let k = 0;
    while (b >= base && k < 4) { b /= base; k++; }
    return (k ? b.toFixed(b < 10 ? 2 : 1) : b) + ' ' + UNITS[+decimal][k];
}
const time = ms => ms > 0 && ms < .1 ? (1000 * ms).toPrecision(2) + ' \u00b5s' : ms < 10 ? ms.toFixed(2) + ' ms' : ms < 1000 ? ms.toFixed(0) + ' ms' : ms < 59950 ? (ms / 1000).toFixed(1) + ' s' : `${Math.floor(ms / 6e4)} min ${Math.floor(ms / 1000 % 60)} s`;
const seconds = s => s < 60 ? s.toFixed(1) + ' s' : s < 3600 ? Math.floor(s / 60) + ' min ' + Math.floor(s % 60) + ' s'
                                                          : Math.floor(s / 3600) + ' h ' + Math.floor(s % 3600 / 60) + ' min';
const short = v => v === 0 ? '0' : Math.abs(v) >= 1e5 || Math.abs(v) < 1e-3 ? v.toExponential(2) : String(+v.toPrecision(4));
const esc = t => String(t).replace(/[&<>"]/g, c => '&#' + c.charCodeAt(0) + ';');
const clamp = (v, lo, hi) => Math.min(hi, Math.max(lo, v));

/* A step of 1, 2 or 5 times a power of ten with at most n steps in a range. */
function roundStep(range, n) {
    let by = Math.pow(10, Math.floor(Math.log10(range / n || 1)));
    for (const grow of [2, 2.5, 2]) if (range / by > n) by *= grow;
    return by;
}

/* Multiples of a step from lo to hi. Counted, so that no rounding error adds up. */
function multiples(lo, hi, by) {
    const out = [];
    for (let k = Math.ceil(lo / by - 1e-9); k * by <= hi + by * 1e-9; k++) out.push(k * by || 0); /* no -0 */
    return out;
}

/* Ticks of bytes from lo to hi: [value, text], round numbers of one unit. */
function byteTicks(lo, hi, n) {
    const base = decimal ? 1000 : 1024;
    let k = 0;
    while (k < 4 && hi >= Math.pow(base, k + 1)) k++;
    const of = Math.pow(base, k), by = roundStep((hi - lo) / of, n);
    return multiples(lo / of, hi / of, by).map(v => [v * of, v ? +v.toPrecision(8) + ' ' + UNITS[+decimal][k] : '0']);
}

/* Ticks of milliseconds: one unit, as many digits as the step needs. */
function timeTicks(lo, hi, n) {
    const [of, name] = hi >= 2000 ? [1000, 's'] : hi < 2 ? [.001, '\u00b5s'] : [1, 'ms'];
    return multiples(lo / of, hi / of, roundStep((hi - lo) / of, n)).map(v => [v * of, v ? +v.toPrecision(8) + ' ' + name : '0']);
}

/* Vertical places of labels, each at least `gap` from the next, all within [lo, hi], near those wanted. */
function spread(wanted, gap, lo, hi) {
    const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b]), at = [];
    let last = lo - gap;
    for (const i of order) last = at[i] = Math.max(wanted[i], last + gap);
    last = hi + gap;
    for (const i of order.reverse()) last = at[i] = Math.min(at[i], last - gap);
    return at;
}
