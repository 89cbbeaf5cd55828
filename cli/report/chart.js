/* chart.js - curves over steps, one or several on one pair of axes.
 *
 * All charts of a page share the range of steps: dragging, the wheel, + and - choose it, 0 or a double click shows
 * everything. */
function smooth(points, strength) {
    if (!strength) return points;
    let sum = 0, weight = 0;
    return points.map(([x, v]) => {
        sum = sum * strength + v * (1 - strength);
        weight = weight * strength + 1 - strength;
        return [x, sum / weight];
    });
}

function decades(lo, hi) {
    const out = [];
    for (let k = Math.floor(Math.log10(lo)); k <= Math.ceil(Math.log10(hi)); k++)
        for (const m of [1, 2, 5]) {
            const v = m * Math.pow(10, k);
            if (v >= lo * .999 && v <= hi * 1.001) out.push(v);
        }
    return out.length > 9 ? out.filter(v => v.toExponential()[0] === '1') : out;
}

/* The point of a curve that is nearest to a step. */
function nearest(points, x) {
    let lo = 0, hi = points.length - 1;
    while (hi - lo > 1) {
        const m = lo + hi >> 1;
        if (points[m][0] <= x) lo = m; else hi = m;
    }
    return points[hi] && Math.abs(points[hi][0] - x) < Math.abs(points[lo][0] - x) ? points[hi] : points[lo];
}

class Chart {
    static all = [];
    static range = null; /* [first, last] step that is shown; null: all */

    static show(range) {
        Chart.range = range;
        Chart.all.forEach(c => c.draw());
    }

    /* o: host, title, series [{name, points, colour, dash}]; and if wanted wide, dots, zero, bytes, show (a value as text),
     * lines [[value, colour, name]], tools (smoothing and scale). */
    constructor(o) {
        const long_ = o.series.some(s => s.points.length > 40);
        Object.assign(this, {strength: o.tools && long_ ? .9 : 0, log: false, at: null, lines: []}, o);
        this.text = o.show || short;
        /* A small number beside larger ones is written as they are: 0.0005, not 5.00e-4. */
        this.tick = (v, most) => o.show || !(most >= 1e-3) || most >= 1e5 ? this.text(v) : String(+v.toPrecision(4));
        this.box = document.createElement('figure');
        this.box.className = 'chart card' + (o.wide ? ' wide' : '');
        this.box.innerHTML = `<figcaption><b>${esc(o.title)}</b><span class="said" aria-live="polite"></span></figcaption>` +
            '<div class="legend"></div><svg tabindex="0" role="img"></svg>';
        this.svg = this.box.querySelector('svg');
        this.said = this.box.querySelector('.said');
        if (o.tools) this.addTools();
        o.host.append(this.box);
        Chart.all.push(this);
        this.listen();
        this.set(o.series, o.lines);
    }

    /* Replaces the curves. */
    set(series, lines) {
        this.series = series.filter(s => s.points.length);
        this.lines = lines || this.lines;
        const v = this.series.flatMap(s => s.points.map(p => p[1])), last = this.series.map(s => s.points[s.points.length - 1][1]);
        const low = v.reduce((a, b) => Math.min(a, b), Infinity), high = v.reduce((a, b) => Math.max(a, b), -Infinity);
        this.rest = `last ${last.map(this.text).join(', ')}; ${this.text(low)} to ${this.text(high)}`;
        this.aria = `${this.title}: ${this.rest}`;
        this.box.querySelector('.legend').innerHTML = this.series.length < 2 ? '' : this.series.map(s =>
            `<span class="key"><i style="background:var(--${s.colour})"></i>${esc(s.name)}</span>`).join('');
        this.draw();
    }

    listen() {
        const svg = this.svg, px = e => e.clientX - svg.getBoundingClientRect().left;
        let from = null;
        svg.style.touchAction = 'pan-y';
        svg.addEventListener('pointerdown', e => { if (!e.button) { from = px(e); svg.setPointerCapture(e.pointerId); } });
        svg.addEventListener('pointermove', e => {
            this.box_ = from !== null && Math.abs(px(e) - from) > 4 ? [Math.min(from, px(e)), Math.max(from, px(e))] : null;
            this.point(this.value(px(e)));
        });
        svg.addEventListener('pointerup', () => {
            const b = this.box_;
            from = this.box_ = null;
            if (b) this.zoom(this.value(b[0]), this.value(b[1]));
        });
        svg.addEventListener('mouseleave', () => this.point(null));
        svg.addEventListener('blur', () => this.point(null));
        svg.addEventListener('dblclick', () => Chart.show(null));
        svg.addEventListener('wheel', e => {
            if (!Chart.range && e.deltaY > 0 || performance.now() - Chart.scrolled < 250) return;
            e.preventDefault();
            this.zoomBy(Math.pow(1.0015, clamp(e.deltaY, -300, 300)), this.value(px(e)));
        }, {passive: false});
        svg.addEventListener('keydown', e => {
            if (e.ctrlKey || e.metaKey || e.altKey) return;
            const points = this.longest().filter(p => p[0] >= this.first && p[0] <= this.last), n = points.length;
            const i = this.at === null ? -1 : points.indexOf(nearest(points, this.at)), by = e.shiftKey ? Math.ceil(n / 20) : 1;
            const to = {ArrowLeft: i < 0 ? n - 1 : i - by, ArrowRight: i + by, Home: 0, End: n - 1}[e.key];
            const mid = this.at === null ? (this.first + this.last) / 2 : this.at;
            if (to !== undefined && n) this.point(points[clamp(to, 0, n - 1)][0]);
            else if (e.key === '+' || e.key === '=') this.zoomBy(.5, mid);
            else if (e.key === '-') this.zoomBy(2, mid);
            else if (e.key === '0') Chart.show(null);
            else return;
            e.preventDefault();
        });
    }

    longest() { return this.series.reduce((a, s) => s.points.length > a.length ? s.points : a, []); }
    value(px) { return this.first + clamp((px - this.l) / (this.w - this.l - 10), 0, 1) * (this.last - this.first); }
    zoom(a, b) {
        const all = this.extent();
        a = Math.max(a, all[0]);
        b = Math.min(b, all[1]);
        if (b - a < 2) return;
        Chart.show(a <= all[0] && b >= all[1] ? null : [a, b]);
    }
    zoomBy(by, at) { this.zoom(at - (at - this.first) * by, at + (this.last - at) * by); }
    point(x) { this.at = x; this.draw(); }
    extent() {
        const xs = this.series.map(s => [s.points[0][0], s.points[s.points.length - 1][0]]);
        return [Math.min(...xs.map(x => x[0])), Math.max(...xs.map(x => x[1]))];
    }

    addTools() {
        const t = document.createElement('div');
        t.className = 'tools';
        t.innerHTML = `<label>smooth <input type="range" min="0" max="0.99" step="0.01" value="${this.strength}"></label>` +
                      '<button aria-pressed="false">log scale</button>';
        t.querySelector('input').oninput = e => { this.strength = +e.target.value; this.draw(); };
        t.querySelector('button').onclick = e => {
            this.log = !this.log;
            e.target.setAttribute('aria-pressed', this.log);
            this.draw();
        };
        this.box.querySelector('figcaption').append(t);
    }

    /* Lowest and highest value among the points that are drawn. */
    scale(drawn) {
        let lo = Infinity, hi = -Infinity;
        for (const points of drawn)
            for (const [x, v] of points)
                if (x >= this.first && x <= this.last && (!this.log || v > 0)) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
        for (const l of this.lines) { lo = Math.min(lo, l[0]); hi = Math.max(hi, l[0]); }
        if (lo > hi) [lo, hi] = [this.log ? .1 : 0, 1];
        if (this.log) return [lo * .9, hi * 1.1];
        const room = (hi - lo || Math.abs(hi) || 1) * .06;
        return this.zero ? [0, hi + room] : [lo - room, hi + room];
    }

    draw() {
        if (!this.series.length) return;
        const w = this.w = this.svg.clientWidth || 440, h = this.wide ? 280 : 180, l = this.l = this.bytes ? 68 : 56, r = 10, t = this.lines.length ? 22 : 8, m = 24;
        const all = this.extent(), range = Chart.range && Chart.range[0] < all[1] && Chart.range[1] > all[0] ? Chart.range : all;
        [this.first, this.last] = [Math.max(range[0], all[0]), Math.min(range[1], all[1])];
        const drawn = this.series.map(s => smooth(s.points, this.strength)), [lo, hi] = this.scale(drawn.concat(this.series.map(s => s.points)));
        const f = v => this.log ? Math.log(v) : v, first = this.first, last = this.last;
        const x = s => l + (last === first ? .5 : (s - first) / (last - first)) * (w - l - r);
        const y = v => h - m - (f(Math.max(v, lo)) - f(lo)) / (f(hi) - f(lo)) * (h - t - m);
        const path = p => {
            const seen = p.filter((q, i) => (p[i + 1] || q)[0] >= first && (p[i - 1] || q)[0] <= last);
            return seen.length ? 'M' + seen.map(q => x(q[0]).toFixed(1) + ' ' + y(q[1]).toFixed(1)).join('L') : 'M0 0';
        };
        this.svg.setAttribute('viewBox', `0 0 ${w} ${h}`);
        this.svg.style.height = h + 'px';
        let s = `<title>${esc(this.aria)}</title><desc>Arrow keys read the values; + and - zoom, 0 shows all steps.</desc>`;
        const ticks = this.log ? decades(lo, hi).map(v => [v, this.text(v)])
                    : this.bytes ? byteTicks(lo, hi, 7) : multiples(lo, hi, roundStep(hi - lo, 7)).map(v => [v, this.tick(+v.toPrecision(10), hi)]);
        for (const [v, text] of ticks)
            s += `<line x1="${l}" x2="${w - r}" y1="${y(v)}" y2="${y(v)}" stroke="var(--line)" stroke-opacity=".6"/>` +
                 `<text x="${l - 8}" y="${y(v) + 4}" text-anchor="end">${text}</text>`;
        for (const v of multiples(first, last, Math.max(1, roundStep(last - first || 1, Math.max(2, w / 90)))))
            s += `<text x="${x(v)}" y="${h - 6}" text-anchor="${x(v) > w - 40 ? 'end' : 'middle'}">${v.toLocaleString('en')}</text>`;
        s += `<svg x="${l - 5}" y="0" width="${w - l - r + 10}" height="${h - m + 4}" viewBox="${l - 5} 0 ${w - l - r + 10} ${h - m + 4}" style="overflow:hidden">`;
        this.series.forEach((c, i) => {
            if (this.strength) s += `<path d="${path(c.points)}" fill="none" stroke="var(--${c.colour})" stroke-opacity=".28"/>`;
            s += `<path d="${path(drawn[i])}" fill="none" stroke="var(--${c.colour})" stroke-width="1.8" stroke-linejoin="round"${c.dash ? ' stroke-dasharray="6 3"' : ''}/>`;
            if (this.dots || c.points.length === 1)
                for (const p of c.points) s += `<circle cx="${x(p[0])}" cy="${y(p[1])}" r="3" fill="var(--${c.colour})"/>`;
        });
        if (this.box_) s += `<rect x="${this.box_[0]}" y="${t}" width="${this.box_[1] - this.box_[0]}" height="${h - m - t}" fill="var(--accent)" fill-opacity=".18"/>`;
        s += '</svg>';
        /* labels of lines, apart from each other and from the top */
        const at = spread(this.lines.map(k => y(k[0]) - 5), 14, 10, h - m - 4);
        for (const [v, colour] of this.lines)
            s += `<line x1="${l}" x2="${w - r}" y1="${y(v)}" y2="${y(v)}" stroke="var(--${colour})" stroke-width="1.5" stroke-dasharray="6 4"/>`;
        this.lines.forEach(([, colour, name], i) => {
            s += `<text x="${w - r}" y="${at[i]}" text-anchor="end" style="fill:var(--${colour});font-weight:600;paint-order:stroke;stroke:var(--card);stroke-width:3px">${esc(name)}</text>`;
        });
        s += this.cursor(x, y, t, h - m);
        this.svg.innerHTML = s;
    }

    /* Marks the values at the chosen step and says them. */
    cursor(x, y, top, bottom) {
        const lead = this.at === null ? null : nearest(this.longest(), this.at);
        this.said.textContent = this.rest;
        if (!lead) return '';
        const near = this.series.map(c => [c, nearest(c.points, lead[0])]);
        this.said.textContent = `step ${lead[0].toLocaleString('en')}: ` + near.map(([c, p]) => (near.length > 1 ? c.name + ' ' : '') + this.text(p[1])).join(', ');
        return `<line x1="${x(lead[0])}" x2="${x(lead[0])}" y1="${top}" y2="${bottom}" stroke="var(--accent)" stroke-opacity=".7"/>` +
            near.map(([c, p]) => `<circle cx="${x(p[0])}" cy="${y(p[1])}" r="4" fill="var(--card)" stroke="var(--${c.colour})" stroke-width="1.8"/>`).join('');
    }
}
Chart.scrolled = -1e9;
addEventListener('scroll', () => { Chart.scrolled = performance.now(); }, {passive: true});
addEventListener('resize', () => Chart.all.forEach(c => c.draw()));
