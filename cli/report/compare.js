/* compare.js - several runs: curves in the same plots, results, and the keys that differ. C is what compare_html
 * (report_compare.c) writes. */
const C = JSON.parse(document.getElementById('runs').textContent), runs = C.runs;
decimal = C.decimal;
const palette = ['c0', 'c1', 'c2', 'c5', 'c4', 'c3', 'c8', 'c7'];
runs.forEach((r, i) => { r.colour = palette[i % palette.length]; r.dash = i >= palette.length; });
$('#sub').textContent = runs.map(r => r.name).join(', ');

const host = $('#charts');
const curves = (title, points, o = {}) => {
    const series = runs.map(r => ({name: r.name, colour: r.colour, dash: r.dash, points: points(r)}));
    const v = series.flatMap(s => s.points.map(p => p[1]));
    if (v.some(k => k !== v[0]) || v.length === 1) new Chart({host, title, series, ...o});
};
const col = c => r => r.rows.filter(k => k[c] !== null).map(k => [k[0], k[c]]);
curves('Loss', col(1), {wide: true, tools: true});
curves('Memory of the process', col(6), {bytes: true, zero: true, show: unit});
curves('Step time, ms', col(4), {zero: true, tools: true});
const terms = [...new Set(runs.flatMap(r => r.terms.map(t => t.name)))];
for (const k of terms) curves(k, r => (r.terms.find(t => t.name === k) || {points: []}).points, {tools: true});
const metrics = [...new Set(runs.flatMap(r => r.evals.flatMap(e => Object.keys(e))))].filter(k => k !== 'step');
for (const k of metrics) curves('Evaluation: ' + k, r => r.evals.filter(e => typeof e[k] === 'number').map(e => [e.step, e[k]]), {dots: true});

const head = `<thead><tr><th></th>${runs.map(r => `<th class="n"><i class="dot" style="background:var(--${r.colour})"></i>${esc(r.name)}</th>`).join('')}</tr></thead>`;
$('#results').innerHTML = head + '<tbody>' + C.results.map(row =>
    `<tr><td>${esc(row[0])}</td>${row.slice(1).map(v => `<td class="n">${esc(v)}</td>`).join('')}</tr>`).join('') + '</tbody>';
$('#keys').innerHTML = C.keys.length ? head + '<tbody>' + C.keys.map(row =>
    `<tr><td>${esc(row[0])}</td>${row.slice(1).map(v => `<td class="n">${v === null ? '' : esc(v)}</td>`).join('')}</tr>`).join('') + '</tbody>'
    : '<tbody><tr><td>The configurations are equal.</td></tr></tbody>';
