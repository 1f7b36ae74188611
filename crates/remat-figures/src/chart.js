// Charts of figures (see figures.js): the options of Apache ECharts, the same for the page and for SVG files. Nothing here
// needs a browser.
'use strict';
Object.assign(remat, (() => {
  // Okabe and Ito's palette; on a dark page black, grey and pale change places with their opposites.
  const HUES = {
    blue: '#0072b2', vermillion: '#d55e00', green: '#009e73', purple: '#cc79a7', sky: '#56b4e9', orange: '#e69f00',
  };
  const INKS = {
    light: { ...HUES, black: '#000', grey: '#787878', brown: '#6e3c0f', pale: '#dedede', ink: '#111', paper: '#fff',
      grid: '#e2e2e2', constants: '#a0a0a0', 'largest op': '#e2e2e2', frame: '#111' },
    dark: { ...HUES, blue: '#3b9fdc', vermillion: '#ee7d2b', black: '#f2f2f2', grey: '#9a9a9a', brown: '#c08a5a',
      pale: '#4a4a4a', ink: '#e4e4e4', paper: '#16181c', grid: '#33363c', constants: '#6a6d73', 'largest op': '#2c2f35',
      frame: '#9a9a9a' },
  };
  // A ring and a box have an inner edge that runs the other way round, so that what lies behind shows through.
  const MARKERS = {
    none: 'none', disc: 'circle', square: 'rect', diamond: 'diamond', up: 'triangle',
    down: 'path://M0 0L10 0L5 9Z',
    ring: 'path://M0 5A5 5 0 1 1 10 5A5 5 0 1 1 0 5ZM1.7 5A3.3 3.3 0 1 0 8.3 5A3.3 3.3 0 1 0 1.7 5Z',
    box: 'path://M0 0L10 0L10 10L0 10ZM1.6 1.6L1.6 8.4L8.4 8.4L8.4 1.6Z',
    cross: 'path://M0 1.6L1.6 0L5 3.4L8.4 0L10 1.6L6.6 5L10 8.4L8.4 10L5 6.6L1.6 10L0 8.4L3.4 5Z',
    plus: 'path://M4.1 0L5.9 0L5.9 4.1L10 4.1L10 5.9L5.9 5.9L5.9 10L4.1 10L4.1 5.9L0 5.9L0 4.1L4.1 4.1Z',
  };
  // In the legend, a line without a marker.
  const BARE = { itemStyle: { opacity: 0 } };
  const MISSES = { oom: ['cross', 'budget cannot be met'], thrash: ['down', 'given up: thrashing'] };

  // Lengths in pixels: around the plot of a panel, a lane above it, a row of the legend, between the markers of stairs.
  const LEFT = 66, RIGHT = 18, TOP = 34, BELOW = 52, LANE = 12, NOTE = 16, ROW = 22, APART = 28, NARROWEST = 360;

  const raised = (power) => [...String(power)].map((digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[digit] ?? '⁻').join('');

  // Round values within an axis and their labels: 1, 2, 5 of each decade on a logarithmic axis.
  function ticks({ from, to, scale }) {
    const linear = () => {
      const rough = (to - from) / 6, unit = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((digit) => digit * unit).find((step) => step >= rough * 0.999) ?? 10 * unit;
      const decimals = Math.min(Math.max(-Math.floor(Math.log10(step) + 1e-9), 0), 9);
      const values = [];
      const last = Math.floor(to / step + 1e-9);
      for (let at = Math.ceil(from / step - 1e-9); at <= last; at++) values.push(at * step);
      return values.map((value) => [value, value.toFixed(decimals)]);
    };
    if (scale === 'linear') return linear();
    const low = Math.log10(from), high = Math.log10(to), span = high - low;
    const digits = span < 1.2 ? [1, 2, 3, 5] : span < 3 ? [1, 2, 5] : [1];
    const found = [];
    for (let decade = Math.floor(low); decade <= Math.ceil(high); decade += Math.max(Math.ceil(span / 8), 1)) {
      for (const digit of digits) {
        const value = digit * 10 ** decade;
        if (value >= from && value <= to) found.push([value, digit, decade]);
      }
    }
    // An axis that spans next to nothing has the ticks of a linear one.
    if (found.length < 3) return linear();
    const plain = (decade) => (found.every(([, , other]) => other >= -3 && other < 4) || (decade >= 0 && decade < 2));
    return found.map(([value, digit, decade]) => {
      if (plain(decade)) return [value, value.toFixed(Math.max(-decade, 0))];
      return [value, digit === 1 ? `10${raised(decade)}` : `${digit}·10${raised(decade)}`];
    });
  }

  const series = (figure) => figure.panels.flatMap((panel) => panel.series);
  const missed = (point) => point.y in MISSES;

  // The lanes above a panel's plot: what is remarked on, or the misses of each series that has markers.
  function lanes(figure, panel) {
    if (panel.notes !== null) {
      return panel.notes.lines.map(({ name, look, at, text, told }) => ({ name, look, label: name, marks: [{
        x: at ?? panel.x.from, hidden: at === null, marker: look.marker, text, told: `${text}\n${told}` }] }));
    }
    if (!series(figure).some((line) => line.points.some(missed))) return [];
    const mark = ({ x, y, told }) => ({ x, marker: MISSES[y][0], text: '',
      told: `${MISSES[y][1]}\n${panel.x.label}: ${number(x)}\n${told}` });
    return panel.series.filter(({ look }) => look.marker !== 'none').map(({ name, look, points }) =>
      ({ name, look, label: '', marks: points.filter(missed).map(mark) }));
  }

  // The legend's height, from the breadth of its names as most fonts have it.
  function legendRows(figure, width) {
    let rows = 1, left = width - 40;
    for (const { name } of legend(figure, INKS.light)) {
      const breadth = 50 + 6.4 * name.length;
      if (breadth > left && left < width - 40) [rows, left] = [rows + 1, width - 40];
      left -= breadth;
    }
    return rows;
  }

  // Where panels lie in a figure of this width, and its height.
  function layout(figure, width) {
    const fitting = Math.max(1, Math.min(figure.columns, figure.panels.length || 1, Math.floor(width / NARROWEST)));
    const cell = width / fitting, across = cell - LEFT - RIGHT;
    const down = Math.round(Math.min(Math.max(across * (figure.columns === 1 ? 0.42 : 0.7), 200), 420));
    const above = figure.panels.map((panel) => {
      const notes = panel.notes !== null;
      const count = lanes(figure, panel).length;
      return { notes, height: count && (notes ? NOTE : LANE) * (count - 1) + 22, heading: notes ? 18 : 0 };
    });
    const highest = Math.max(0, ...above.map(({ height, heading }) => height + heading));
    const each = TOP + highest + down + BELOW;
    const places = figure.panels.map((_, at) => ({
      left: (at % fitting) * cell + LEFT, top: Math.floor(at / fitting) * each + TOP + highest, width: across, height: down,
      lanes: above[at].height, heading: above[at].heading }));
    const bottom = Math.ceil(figure.panels.length / fitting) * each;
    return { places, bottom, height: Math.ceil(bottom + legendRows(figure, width) * ROW + 14) };
  }

  const number = (value) => Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(5)));
  const escaped = (text) => String(text).replace(/[&<>"']/g, (letter) => `&#${letter.charCodeAt(0)};`);

  function axis(own, at, down, ink) {
    const marks = ticks(own), labels = new Map(marks.map(([value, label]) => [value.toPrecision(9), label]));
    const values = marks.map(([value]) => value);
    return { gridIndex: at, type: own.scale === 'log' ? 'log' : 'value', min: own.from, max: own.to, name: own.label,
      nameLocation: 'middle', nameGap: down ? 46 : 30, nameTextStyle: { color: ink.ink, fontSize: 12 },
      axisLine: { show: false }, axisTick: { show: true, customValues: values, lineStyle: { color: ink.frame } },
      axisLabel: { customValues: values, color: ink.ink, fontSize: 11,
        formatter: (value) => labels.get(value.toPrecision(9)) ?? '' },
      splitLine: { show: true, lineStyle: { color: ink.grid, width: 1 } } };
  }

  const styled = (look, ink) => ({
    lineStyle: { color: ink[look.colour], width: 1.7, type: look.dash }, itemStyle: { color: ink[look.colour] },
    symbol: MARKERS[look.marker], symbolSize: 8 });

  // Of points that are crowded, the first, the last and some between have a marker; all answer to the pointer.
  function marked(points, panel, width) {
    const { from, to, scale } = panel.x;
    const part = (x) => scale === 'log' ? Math.log(x / from) / Math.log(to / from) : (x - from) / (to - from);
    const place = ({ x }) => width * part(x);
    const end = points.length && place(points[points.length - 1]);
    let last = -Infinity;
    return points.map((point, at) => {
      const here = place(point);
      const free = at === 0 || at === points.length - 1 || (here - last >= APART && end - here >= APART);
      if (free) last = here;
      return free;
    });
  }

  function line(own, panel, at, place, ink) {
    const shown = own.join === 'stairs' ? marked(own.points, panel, place.width) : null;
    // Nothing but a value above 0 has a place on a logarithmic axis.
    const fits = ({ y }) => Number.isFinite(y) && (panel.y.scale === 'linear' || y > 0);
    const data = own.points.map((point, index) => ({ value: [point.x, fits(point) ? point.y : null],
      told: [`${panel.x.label}: ${number(point.x)}`, `${panel.y.label}: ${fits(point) ? number(point.y) : '-'}`, point.told]
        .join('\n'),
      ...(shown && !shown[index] ? { itemStyle: { opacity: 0 } } : {}) }));
    return { type: 'line', name: own.name, xAxisIndex: at, yAxisIndex: at, data, clip: false, connectNulls: false,
      step: own.join === 'stairs' && 'end', showAllSymbol: true, ...styled(own.look, ink),
      emphasis: { scale: 1.5, lineStyle: { width: 2.4 } } };
  }

  function bars(panel, at, names, ink) {
    return names.map(({ name, look }) => ({ type: 'custom', name, xAxisIndex: at, yAxisIndex: at, clip: true,
      itemStyle: { color: ink[look.colour] }, data: panel.spans.filter((span) => span.name === name).map((span) => ({
        value: [span.from, span.to, span.row], told: `${span.told}\nops ${span.from + 1} to ${span.to}` })),
      renderItem: (_, api) => {
        const [x, y] = api.coord([api.value(0), api.value(2) + 1]);
        const [right, bottom] = api.coord([api.value(1), api.value(2)]);
        const shape = { x, y, width: right - x, height: bottom - y };
        return { type: 'rect', shape, style: { fill: ink[look.colour] } };
      } }));
  }

  const empty = (name, at) => ({ name, type: 'line', xAxisIndex: at, yAxisIndex: at, data: [], silent: true });

  const shade = ([to, kind], panel, at, ink) => ({ ...empty(kind, at), markArea: {
    silent: true, itemStyle: { color: ink[kind] },
    data: [[{ xAxis: panel.x.from }, { xAxis: Math.min(to, panel.x.to) }]] } });

  const rule = ({ x, before, after }, at, ink) => ({ ...empty('', at), markLine: {
    silent: true, symbol: 'none', lineStyle: { color: ink.ink, type: 'dashed', width: 1.4 },
    data: [{ xAxis: x, label: { formatter: `${before}   ${after}`, color: ink.ink, position: 'end' } }] } });

  // Names in the legend, with the misses and shades that occur. They are series without points, which come first: their
  // looks are those that the legend shows.
  function legend(figure, ink) {
    const mark = (name, symbol, color) =>
      ({ ...empty(name, 0), type: 'scatter', symbol, itemStyle: { color, opacity: 1 } });
    const occurs = (miss) => series(figure).some(({ points }) => points.some(({ y }) => y === miss));
    const misses = Object.keys(MISSES).filter(occurs).map((miss) => MISSES[miss]);
    const shades = [...new Set(figure.panels.flatMap(({ bands }) => bands.map(([, shade]) => shade)))].reverse();
    return [...figure.legend.map(({ name, look }) => ({ ...empty(name, 0), ...styled(look, ink) })),
      ...misses.map(([marker, name]) => mark(name, MARKERS[marker], ink.black)),
      ...shades.map((name) => mark(name, 'rect', ink[name]))];
  }

  // Lanes lie in a grid of their own, over the same values of x.
  function above(all, panel, place, option, ink) {
    const at = option.grid.length, notes = place.heading > 0;
    const { from, to, scale } = panel.x, middle = scale === 'log' ? Math.sqrt(from * to) : (from + to) / 2;
    option.grid.push({ left: place.left, top: place.top - place.lanes + 4, width: place.width, height: place.lanes - 18,
      outerBoundsMode: 'none' });
    option.xAxis.push({ gridIndex: at, type: scale === 'log' ? 'log' : 'value', min: from, max: to, show: false });
    option.yAxis.push({ gridIndex: at, type: 'category', inverse: true, boundaryGap: false, data: all.map((_, row) => row),
      axisLine: { show: false }, axisTick: { show: false },
      splitLine: { show: true, lineStyle: { color: ink.grid, width: 0.8 } },
      axisLabel: { show: notes, interval: 0, fontSize: 10, color: ink.ink, formatter: (row) => all[row].label } });
    all.forEach((lane, row) => {
      const data = lane.marks.map((mark) => ({ value: [mark.x, row], symbol: MARKERS[mark.marker], told: mark.told,
        itemStyle: { color: mark.hidden ? 'transparent' : ink[lane.look.colour] },
        label: { show: notes, formatter: mark.text, fontSize: 10, color: ink.ink, distance: 5,
          position: mark.x > middle ? 'left' : 'right' } }));
      // The series' own marker left of its lane.
      if (!notes) data.push({ value: [from, row], symbol: MARKERS[lane.look.marker], symbolOffset: [-10, 0], told: '' });
      option.series.push({ type: 'scatter', name: lane.name, xAxisIndex: at, yAxisIndex: at, data, clip: false,
        symbolSize: notes ? 8 : 7, itemStyle: { color: ink[lane.look.colour], opacity: 1 } });
    });
  }

  function option(figure, width, mode) {
    const ink = INKS[mode], { places, bottom } = layout(figure, width);
    const option = { animation: false, backgroundColor: ink.paper, textStyle: { fontFamily: 'sans-serif', color: ink.ink },
      title: [], grid: [], xAxis: [], yAxis: [], series: [] };
    const words = (place, above, text, fontSize, fontWeight) => option.title.push({ text, left: place.left + place.width / 2,
      top: place.top - above, textAlign: 'center', padding: 0, textStyle: { fontSize, fontWeight, color: ink.ink } });
    const names = legend(figure, ink);
    option.series.push(...names);
    figure.panels.forEach((panel, index) => {
      const place = places[index], at = option.grid.length;
      if (panel.title) words(place, place.lanes + place.heading + (place.lanes ? 22 : 24), panel.title, 13, 'bold');
      if (place.heading) words(place, place.lanes + 16, panel.notes.heading, 11, 'normal');
      option.grid.push({ left: place.left, top: place.top, width: place.width, height: place.height, show: true,
        borderColor: ink.frame, borderWidth: 1, backgroundColor: 'transparent', outerBoundsMode: 'none' });
      option.xAxis.push(axis(panel.x, at, false, ink));
      option.yAxis.push(axis(panel.y, at, true, ink));
      option.series.push(...panel.bands.map((band) => shade(band, panel, at, ink)));
      if (panel.spans.length) option.series.push(...bars(panel, at, figure.legend, ink));
      option.series.push(...panel.series.map((own) => line(own, panel, at, place, ink)));
      if (panel.rule) option.series.push(rule(panel.rule, at, ink));
      const all = lanes(figure, panel);
      if (all.length) above(all, panel, place, option, ink);
    });
    const bare = ({ type, symbol }) => type === 'line' && symbol === 'none';
    option.legend = { left: 'center', top: bottom, width: width - 40, itemWidth: 30, itemHeight: 10, itemGap: 16,
      data: names.map((own) => ({ name: own.name, ...(bare(own) && BARE) })),
      textStyle: { color: ink.ink, fontSize: 12 }, inactiveColor: ink.pale };
    const pointed = ({ seriesName, data }) => data?.told
      && [`<b>${escaped(seriesName)}</b>`, ...data.told.split('\n').filter(Boolean).map(escaped)].join('<br>');
    option.tooltip = { trigger: 'item', confine: true, backgroundColor: ink.paper, borderColor: ink.grid,
      textStyle: { color: ink.ink, fontSize: 13 }, formatter: pointed };
    return option;
  }

  // The figure as an SVG document: for paper, so light.
  function svg(json) {
    const figure = remat.figure(JSON.parse(json)), width = { 1: 1000, 2: 960, 3: 1290 }[figure.columns];
    const chart = echarts.init(null, null, { renderer: 'svg', ssr: true, width, height: layout(figure, width).height });
    chart.setOption(option(figure, width, 'light'));
    const text = chart.renderToSVGString({ useViewBox: false });
    chart.dispose();
    return text;
  }

  return { option, svg, height: (figure, width) => layout(figure, width).height };
})());
