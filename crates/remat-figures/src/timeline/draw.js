// The page of a timeline: charts by Apache ECharts, tables, and what answers to the pointer.
'use strict';
Object.assign(timeline, (() => {
  const { ORDER, bytes, time, count, percent } = timeline;
  const HUES = {
    light: { parameters: '#35548b', 'optimizer state': '#5f8fc9', other: '#a8b2bf', gradients: '#3f9d8f', activations: '#f0a93f',
      temporaries: '#f6d49a', workspace: '#c7649c', budget: '#d33f49', replay: '#8e5bc0', ink: '#1c2330', soft: '#5d6778',
      grid: '#e9ebef', paper: '#ffffff', forward: '#f0a93f', backward: '#3f9d8f', update: '#5f8fc9' },
    dark: { parameters: '#4a6fb3', 'optimizer state': '#76a6de', other: '#747f8d', gradients: '#4bb3a3', activations: '#e2a043',
      temporaries: '#a5824a', workspace: '#cf74a8', budget: '#ee6a72', replay: '#b28be0', ink: '#e6e9ef', soft: '#98a2b3',
      grid: '#262b33', paper: '#14171c', forward: '#e2a043', backward: '#4bb3a3', update: '#76a6de' },
  };
  const PARTS = 1600; // of a window, each with two samples at most
  const MOST_MARKS = 500;
  const ROWS = 15;

  const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const element = (tag, parent, text = '') => {
    const made = parent.appendChild(document.createElement(tag));
    made.textContent = text;
    return made;
  };
  const at = (id) => document.getElementById(id);

  function draw(run) {
    const dark = matchMedia('(prefers-color-scheme: dark)');
    const hues = () => HUES[dark.matches ? 'dark' : 'light'];
    const charts = { steps: echarts.init(at('steps')), step: echarts.init(at('step')) };
    const state = { kept: 0, step: null, from: 0, to: 0, by: 'module', all: false };
    const budget = run.run.budget;

    heading(run);
    keptButtons();
    byButtons();
    drawSteps();
    const asked = new URLSearchParams(location.hash.slice(1));
    const named = run.kept.findIndex((step) => String(step.number) === asked.get('step'));
    show(named >= 0 ? named : typical());
    if (asked.get('from')) zoom(Number(asked.get('from')), Number(asked.get('to')));
    if (asked.get('at')) point(Number(asked.get('at')));

    dark.addEventListener('change', () => {
      drawSteps();
      drawStep();
    });
    let waiting;
    addEventListener('resize', () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        Object.values(charts).forEach((chart) => chart.resize());
        drawStep();
      }, 100);
    });
    addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = state.kept + (by ?? 0);
      if (by && run.kept[next] && !event.altKey && !event.ctrlKey && !event.metaKey) show(next);
    });

    // The kept step of the kind that most steps are of; the last one of them.
    function typical() {
      const kinds = new Map();
      run.lines.forEach((line) => kinds.set(line.kind, (kinds.get(line.kind) ?? 0) + line.count));
      const most = run.kept.map((step) => kinds.get(step.kind) ?? 0);
      return most.lastIndexOf(Math.max(...most));
    }

    // All steps.

    function drawSteps() {
      const hue = hues(), lines = run.lines;
      const top = Math.max(budget ?? 0, ...lines.map((line) => sum(line.layers))) * 1.06;
      const durations = lines.map((line) => (line.ended - line.began) / line.count).sort((a, b) => a - b);
      const longest = durations[Math.floor(durations.length * 0.95 - 0.01)] * 1.25 || 1;
      const details = new Set(run.kept.map((step) => step.number));
      const bar = (api, layer) => {
        const [left] = api.coord([api.value(0) - 0.5, 0]), [right] = api.coord([api.value(0) + 0.5, 0]);
        const gap = right - left > 4 ? Math.min((right - left) * 0.12, 6) : 0;
        return { x: left + gap, width: Math.max(right - left - 2 * gap, 0.5), y: (value) => api.coord([0, value])[1] };
      };
      const piled = (params, api) => {
        const place = bar(api);
        let from = 0;
        return { type: 'group', children: lines[params.dataIndex].layers.map((value, layer) => {
          const to = from + value;
          const shape = { x: place.x, width: place.width, y: place.y(to), height: place.y(from) - place.y(to) };
          from = to;
          return { type: 'rect', shape, style: { fill: hue[ORDER[layer]] } };
        }) };
      };
      const clock = (params, api) => {
        const line = lines[params.dataIndex], each = 1 / line.count, place = bar(api);
        const whole = Math.min((line.ended - line.began) * each, longest), again = Math.min(line.replayed * each, whole);
        const rect = (from, to, fill) => ({ type: 'rect', style: { fill }, shape: { x: place.x, width: place.width,
          y: place.y(to), height: place.y(from) - place.y(to) } });
        const children = [rect(0, again, hue.replay), rect(again, whole, hue.other)];
        if (lines.some((other) => details.has(other.number)) && details.has(line.number)) {
          const middle = place.x + place.width / 2;
          children.push({ type: 'circle', shape: { cx: middle, cy: place.y(0) + 7, r: 2.6 }, style: { fill: hue.ink } });
        }
        return { type: 'group', children };
      };
      const last = lines[lines.length - 1];
      const data = lines.map((line) => [line.number + (line.count - 1) / 2]);
      const x = (index, shown) => ({ type: 'value', gridIndex: index, min: 0.5, max: Math.max(last.number + last.count - 0.5, 1.5),
        splitLine: { show: false }, axisLine: { show: !shown, lineStyle: { color: hue.soft } }, axisTick: { show: false },
        minInterval: 1, axisLabel: { show: shown, color: hue.soft, margin: 14, showMinLabel: false, showMaxLabel: false,
          formatter: (value) => Number.isInteger(value) ? value : '' } });
      charts.steps.setOption({
        animation: false,
        grid: [{ left: 76, right: 24, top: 14, height: 96 }, { left: 76, right: 24, top: 122, height: 36 }],
        xAxis: [x(0, false), x(1, true)],
        yAxis: [amount(hue, 0, top), { type: 'value', gridIndex: 1, min: 0, max: longest, interval: longest,
          axisLabel: { color: hue.soft, fontSize: 11, formatter: (value) => value ? time(value) : '0' }, splitLine: { show: false } }],
        tooltip: tip(hue, { trigger: 'item', formatter: ({ dataIndex }) => lineTip(lines[dataIndex], hue) }),
        series: [
          { type: 'custom', renderItem: piled, data, encode: { x: 0, y: 0 }, markLine: budgetLine(hue) },
          { type: 'custom', renderItem: clock, data, encode: { x: 0, y: 0 }, xAxisIndex: 1, yAxisIndex: 1 },
        ],
      }, { notMerge: true });
      charts.steps.off('click');
      charts.steps.on('click', ({ dataIndex }) => {
        const line = lines[dataIndex];
        const kept = run.kept.findIndex((step) => step.number >= line.number && step.number < line.number + line.count);
        const like = run.kept.findLastIndex((step) => step.kind === line.kind);
        if (kept >= 0 || like >= 0) show(kept >= 0 ? kept : like);
      });
    }

    function lineTip(line, hue) {
      const name = line.count === 1 ? `step ${line.number}` : `steps ${line.number} to ${line.number + line.count - 1}`;
      const took = (line.ended - line.began) / line.count;
      return `<div class="tip"><b>${name}</b>${line.planned ? ' · as planned' : ''}<br>${time(took)}${line.count > 1 ? ' each' : ''}, ` +
        `${percent(line.replayed / line.count, took)} recomputing<br>${count(line.evictions)} evictions ` +
        `(${bytes(line.evicted)}), ${count(line.replays)} replays<hr>at the peak ${levels(line.layers, hue)}</div>`;
    }

    // One step.

    function show(kept) {
      [state.kept, state.step] = [kept, run.step(kept)];
      const { kept: step, took, replays, evictions } = state.step;
      [state.from, state.to] = [0, took];
      at('which').textContent = `Step ${step.number}`;
      const again = replays.reduce((all, op) => all + op.took, 0);
      at('why').textContent = `Kept as ${step.roles.join(', ')}. ${time(took)}, of which ${time(again)} (${percent(again, took)}) ` +
        `recomputing; ${count(evictions.length)} evictions, ${count(replays.length)} replays` +
        (step.planned ? '; it ran as planned.' : '.');
      document.querySelectorAll('#kept button').forEach((button, index) => button.setAttribute('aria-pressed', index === kept));
      drawStep();
      drawHolders();
    }

    function zoom(from, to) {
      const { took } = state.step;
      [state.from, state.to] = [Math.max(from, 0), Math.min(to, took)];
      drawStep();
    }

    function point(ms) {
      const chart = charts.step;
      const [x, y] = chart.convertToPixel({ gridIndex: 0 }, [ms, state.step.highest / 2]);
      chart.dispatchAction({ type: 'showTip', x, y });
    }

    function drawStep() {
      const hue = hues(), { step, from, to } = state;
      const chosen = timeline.thinned(step, from, to, PARTS);
      const wide = Math.max(at('step').clientWidth - 110, 300), pixel = (to - from) / wide;
      // Drawn here rather than by lines of the library, which leaves out points that lie close together.
      const pile = (params, api) => {
        const below = chosen.map(() => 0), xs = chosen.map((at) => api.coord([step.times[at], 0])[0]);
        const y = (value) => api.coord([0, value])[1];
        let lower = xs.flatMap((x, index) => index ? [[x, y(0)], [x, y(0)]] : [[x, y(0)]]);
        const children = ORDER.map((kind, layer) => {
          chosen.forEach((at, index) => below[index] += step.series[layer][at]);
          const upper = xs.flatMap((x, index) => index ? [[x, y(below[index - 1])], [x, y(below[index])]] : [[x, y(below[0])]]);
          const points = [...upper, ...[...lower].reverse()];
          lower = upper;
          return { type: 'polygon', shape: { points }, style: { fill: hue[kind] } };
        });
        return { type: 'group', children };
      };
      const inside = step.evictions.filter(({ at }) => at >= from && at <= to);
      const marks = [...inside].sort((a, b) => b.bytes - a.bytes).slice(0, MOST_MARKS);
      const largest = Math.max(1, ...step.evictions.map(({ bytes }) => bytes));
      const gone = { name: 'evictions', type: 'scatter', symbol: 'path://M0 0L10 0L5 8Z', silent: true, z: 6,
        itemStyle: { color: hue.budget, borderColor: hue.paper, borderWidth: 0.8 },
        symbolSize: ([, , size]) => 6 + 7 * Math.sqrt(size / largest), symbolOffset: [0, '-60%'],
        data: marks.map(({ at, bytes, level }) => [at, level, bytes]) };
      const ops = timeline.spans(step.ops, from, to, pixel, (op) => run.places[op.place].phase).map((span) => [0, span]);
      const again = timeline.spans(step.replays, from, to, pixel, () => 'replay').map((span) => [1, span]);
      const lanes = [...ops, ...again];
      const lane = (params, api) => {
        const [row, span] = lanes[params.dataIndex];
        const [x, y] = api.coord([Math.max(span.from, from), row]), [end] = api.coord([Math.min(span.end, to), row]);
        const height = api.size([0, 1])[1] * 0.72;
        return { type: 'rect', style: { fill: hue[span.look] },
          shape: { x, y: y - height / 2, width: Math.max(end - x, 0.8), height } };
      };
      const top = Math.max(budget ?? 0, step.highest) * 1.08, span = to - from;
      const x = (index, shown) => ({ type: 'value', gridIndex: index, min: 0, max: step.took, splitLine: { show: false },
        axisLine: { show: index === 0, onZero: false, lineStyle: { color: hue.soft } }, axisTick: { show: shown },
        axisLabel: { show: shown, color: hue.soft, formatter: (value) => span > 3000 ? `${Number((value / 1000).toFixed(3))} s` : `${Number(value.toFixed(3))} ms`, hideOverlap: true,
          showMinLabel: true, showMaxLabel: false },
        axisPointer: { show: true, label: { show: false }, lineStyle: { color: hue.ink, opacity: 0.5, type: 'solid' } } });
      charts.step.setOption({
        animation: false,
        grid: [{ left: 76, right: 24, top: 18, bottom: 148 }, { left: 76, right: 24, height: 46, bottom: 88 }],
        axisPointer: { link: [{ xAxisIndex: 'all' }] },
        xAxis: [x(0, false), x(1, true)],
        yAxis: [amount(hue, 0, top), { type: 'category', gridIndex: 1, data: ['ops', 'replays'], inverse: true,
          axisLabel: { color: hue.soft, fontSize: 11.5 }, axisLine: { show: false }, axisTick: { show: false } }],
        dataZoom: [
          { type: 'inside', xAxisIndex: [0, 1], filterMode: 'none', startValue: from, endValue: to },
          { type: 'slider', xAxisIndex: [0, 1], filterMode: 'none', startValue: from, endValue: to, height: 22, bottom: 16,
            left: 76, right: 24, showDataShadow: false, brushSelect: true, borderColor: hue.grid, textStyle: { color: hue.soft, fontSize: 11 },
            labelFormatter: (value) => time(value) },
        ],
        tooltip: tip(hue, { trigger: 'axis', formatter: (points) => stepTip(points[0]?.axisValue ?? 0, hue) }),
        series: [
          { type: 'custom', renderItem: pile, silent: true, clip: true, data: [[from, 0]], markLine: budgetLine(hue) },
          // What the pointer finds.
          { type: 'line', symbol: 'none', silent: true, lineStyle: { width: 0 }, emphasis: { disabled: true },
            data: chosen.map((at) => [step.times[at], step.totals[at]]) },
          gone,
          { type: 'custom', renderItem: lane, silent: true, clip: true, xAxisIndex: 1, yAxisIndex: 1, encode: { x: 0, y: 1 },
            data: lanes.map(([row, span]) => [span.from, row]) },
          // The pointer's line goes through both grids.
          { type: 'line', xAxisIndex: 1, yAxisIndex: 1, symbol: 'none', silent: true, lineStyle: { width: 0 },
            data: chosen.map((at) => [step.times[at], 0]) },
        ],
      }, { notMerge: true });
      keys(hue);
    }

    let zooming;
    charts.step.on('datazoom', () => {
      const [{ startValue, endValue }] = charts.step.getOption().dataZoom;
      [state.from, state.to] = [startValue, endValue];
      clearTimeout(zooming);
      zooming = setTimeout(drawStep, 120);
    });

    // What was at a moment: the op or the replay that ran, or the one before it, and the bytes by kind.
    function stepTip(ms, hue) {
      const { step } = state;
      const latest = (ops) => ops[timeline.after(ops.starts ??= ops.map((op) => op.at), ms) - 1];
      const [op, replay] = [latest(step.ops), latest(step.replays)];
      const runs = (op) => op && ms <= op.at + op.took;
      const shown = runs(replay) ? replay : op;
      const index = Math.max(timeline.after(step.times, ms) - 1, 0);
      const gap = (state.to - state.from) / 400;
      const near = step.evictions.filter(({ at }) => Math.abs(at - ms) < gap).sort((a, b) => b.bytes - a.bytes);
      const what = shown ? opTip(shown, shown === replay, runs(shown)) : '';
      const gone = near.length ? `<hr><span class="gone">▼ ${near.length > 1 ? `${near.length} evictions here, the largest` : 'evicted'}</span> ` +
        `<b>${bytes(near[0].bytes)}</b> ${whence(run.places[near[0].place])}` : '';
      return `<div class="tip">${time(ms)} in the step<hr>${what}${gone}<hr>` +
        `${levels(step.series.map((layer) => layer[index]), hue)}</div>`;
    }

    function opTip(op, again, now) {
      const place = run.places[op.place];
      const made = op.made ? `, makes ${bytes(op.made)}` : '', workspace = op.workspace ? `, workspace ${bytes(op.workspace)}` : '';
      return `<b>${escaped(place.name || 'an op')}</b> <span class="${again ? 'again' : ''}">${again ? 'replayed' : place.phase}</span>` +
        `${now ? '' : ' (ran before)'}<br>${whence(place)}<br>takes ${time(op.took)}${made}${workspace}`;
    }

    function whence({ module, line, function: name }) {
      const where = line ? `<code>${escaped(line)}${name ? ` in ${escaped(name)}` : ''}</code>` : '';
      return [escaped(module), where].filter(Boolean).join('<br>') || 'made by no op of the run';
    }

    function levels(layers, hue) {
      const rows = ORDER.map((kind, layer) => [kind, layers[layer]]).reverse().filter(([, value]) => value > 0);
      const table = rows.map(([kind, value]) => `<tr><td><i style="background:${hue[kind]}"></i>${kind}</td><td>${bytes(value)}</td></tr>`);
      const total = sum(layers);
      return `<b>${bytes(total)}</b>${budget ? ` (${percent(total, budget)} of the budget)` : ''}<table>${table.join('')}</table>`;
    }

    function keys(hue) {
      const place = at('keys');
      place.textContent = '';
      const key = (mark, color, text) => {
        const item = element('span', place);
        if (mark) Object.assign(element('span', item, `${mark} `).style, { color }); else element('i', item).style.background = color;
        item.append(text);
      };
      const used = ORDER.filter((_, layer) => state.step.series[layer].some((value) => value > 0));
      used.reverse().forEach((kind) => key('', hue[kind], kind));
      if (budget) key('┅', hue.budget, 'budget');
      key('▼', hue.budget, 'eviction');
      key('▮', hue.replay, 'replay');
      for (const phase of run.phases) key('▮', hue[phase], phase);
    }

    // Axes and lines that both charts share.

    function amount(hue, index, top) {
      const unit = 2 ** Math.floor(Math.log2(Math.max(top, 8) / 4));
      const interval = [1, 1.5, 2].map((times) => times * unit).find((step) => top / step <= 5) ?? 2 * unit;
      return { type: 'value', gridIndex: index, min: 0, max: top, interval, axisTick: { show: false }, splitLine: { lineStyle: { color: hue.grid } },
        axisLabel: { color: hue.soft, fontSize: 11.5, showMaxLabel: false, formatter: (value) => bytes(value).replace(/\.0+ /, ' ') } };
    }

    function budgetLine(hue) {
      if (!budget) return undefined;
      return { silent: true, symbol: 'none', data: [{ yAxis: budget }], lineStyle: { color: hue.budget, type: [6, 4], width: 1.6 },
        label: { formatter: `budget ${bytes(budget).replace(/\.0+ /, ' ')}`, position: 'insideEndTop', color: hue.budget, fontSize: 11.5, fontWeight: 600 } };
    }

    function tip(hue, more) {
      return { confine: true, backgroundColor: hue.paper, borderColor: hue.grid, textStyle: { color: hue.ink }, padding: [8, 11],
        extraCssText: 'box-shadow: 0 4px 18px rgba(0,0,0,.16); border-radius: 9px;', ...more };
    }

    function sum(values) {
      return values.reduce((all, value) => all + value, 0);
    }

    // Around the charts.

    function heading() {
      const { argv, device, peak, seconds, slowdown, evictions, recomputed, recompute_seconds: again, torch } = run.run;
      const name = argv[0].replace(/^.*\//, '') || 'a run';
      document.title = `${name}: timeline`;
      document.querySelector('h1').textContent = [name, ...argv.slice(1)].join(' ');
      at('about').textContent = [device, budget ? `budget ${bytes(budget).replace(/\.0+ /, ' ')}` : 'no budget', `${count(run.count)} steps`,
        seconds ? `${seconds.toFixed(1)} s` : '', `torch ${torch}`].filter(Boolean).join(' · ');
      const cards = [];
      if (peak !== undefined) cards.push([bytes(peak), budget ? `peak, ${percent(peak, budget)} of the budget` : 'peak']);
      const all = (key) => run.steps[key].reduce((all, value) => all + value, 0);
      cards.push([count(evictions ?? all('evictions')), `evictions, ${bytes(all('evicted'))} of what the program holds`]);
      const part = again !== undefined && seconds ? `, ${percent(again, seconds)} of the time` : '';
      cards.push([count(recomputed ?? all('replays')), `ops recomputed${part}`]);
      if (slowdown !== undefined) cards.push([`${slowdown.toFixed(2)}×`, 'as long as without a budget, about']);
      const planned = all('planned');
      cards.push([count(run.count), planned ? `steps, ${count(planned)} as planned` : 'steps']);
      for (const [value, text] of cards) {
        const card = element('div', document.querySelector('.cards'));
        card.className = 'card';
        element('b', card, value);
        element('span', card, text);
      }
    }

    function keptButtons() {
      run.kept.forEach((step, index) => {
        const title = step.roles[step.roles.length - 1];
        const button = element('button', at('kept'), `step ${step.number}: ${title.replace(/^the /, '')}`);
        button.title = step.roles.join(', ');
        button.onclick = () => show(index);
      });
      const whole = element('button', at('kept'), 'whole step');
      whole.style.marginLeft = 'auto';
      whole.onclick = () => zoom(0, state.step.took);
    }

    function byButtons() {
      const choices = { module: 'by module', line: 'by source line' };
      for (const [key, text] of Object.entries(choices)) {
        const button = element('button', at('by'), text);
        button.dataset.by = key;
        button.onclick = () => {
          [state.by, state.all] = [key, false];
          drawCosts();
        };
      }
      drawCosts();
    }

    function drawCosts() {
      document.querySelectorAll('#by button').forEach((button) => button.setAttribute('aria-pressed', button.dataset.by === state.by));
      const rows = timeline.costs(run, state.by), whole = sum(rows.map(({ replayed }) => replayed));
      const head = [state.by === 'module' ? 'module' : 'source line', 'recomputing', 'share', 'replays', 'bytes recomputed', 'evictions',
        'bytes evicted'];
      table(at('costs'), head, rows.map((row) => [
        { text: row.name, note: row.note, bar: row.replayed / (rows[0].replayed || 1) }, time(row.replayed),
        percent(row.replayed, whole), count(row.replays), bytes(row.returned), count(row.evictions), bytes(row.evicted)]),
      'Nothing was dropped in this run: it fits its budget.');
    }

    function drawHolders() {
      const rows = timeline.holders(run, state.step), whole = sum(rows.map((row) => row.bytes));
      const { kept, peak, highest } = state.step;
      at('holds').textContent = `At the peak of step ${kept.number}, ${time(peak)} after its beginning: ${bytes(highest)}, ` +
        'by the module whose op made it.';
      table(at('held'), ['module', 'kind', 'bytes', 'share', 'storages'], rows.map((row) => [
        { text: row.name, bar: row.bytes / (rows[0].bytes || 1), color: hues()[row.kind] }, row.kind, bytes(row.bytes),
        percent(row.bytes, whole), count(row.blocks)]), 'Nothing was held.');
    }

    function table(place, head, rows, nothing) {
      place.textContent = '';
      const top = element('tr', element('thead', place)), body = element('tbody', place);
      if (!rows.length) {
        element('td', element('tr', body), nothing);
        return;
      }
      head.forEach((name) => element('th', top, name));
      const add = (cells) => {
        const row = element('tr', body);
        cells.forEach((cell) => {
          const made = element('td', row, cell.text ?? cell);
          if (cell.note) element('small', made, ` ${cell.note}`);
          if (cell.bar !== undefined) {
            const bar = element('div', made);
            bar.className = 'bar';
            bar.style.width = `${(100 * cell.bar).toFixed(2)}%`;
            if (cell.color) bar.style.background = cell.color;
          }
        });
      };
      rows.slice(0, ROWS).forEach(add);
      if (rows.length > ROWS) {
        const cell = element('td', element('tr', body));
        cell.colSpan = head.length;
        const button = element('button', cell, `show all ${count(rows.length)}`);
        button.onclick = () => {
          cell.parentElement.remove();
          rows.slice(ROWS).forEach(add);
        };
      }
    }

    return { state, charts, show, zoom, point, tipAt: (ms) => stepTip(ms, hues()) };
  }

  return { draw };
})());
