// A recorded run (see told.rs) as series, ops and tables. Nothing here needs a browser.
'use strict';
const timeline = (() => {
  const [OP, REPLAY, BORN, DIED, EVICTED, RETURNED, OUTSIDE] = [0, 1, 2, 3, 4, 5, 6];
  const TICKS = 10000; // in a millisecond

  // Kinds from the bottom of the pile to its top; workspace is the topmost layer.
  const ORDER = ['parameters', 'optimizer state', 'other', 'gradients', 'activations', 'temporaries', 'workspace'];

  const bytes = (count) => {
    const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
    let unit = 0, value = count;
    while (Math.abs(value) >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
    return `${unit ? value.toFixed(value < 10 ? 2 : value < 100 ? 1 : 0) : value} ${units[unit]}`;
  };
  const time = (ms) => ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 1 ? `${ms.toFixed(ms < 10 ? 2 : 1)} ms`
    : `${(ms * 1000).toFixed(ms < 0.01 ? 1 : 0)} µs`;
  const count = (number) => number.toLocaleString('en-US');
  const percent = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)}%` : '';

  // Names without what all of them begin with: the class of the outermost module, the folder of the program.
  function shortened(names, separator) {
    const named = names.filter((name) => name.includes(separator));
    if (!named.length) return names;
    let shared = named[0].slice(0, named[0].lastIndexOf(separator) + 1);
    for (const name of named) while (shared && !name.startsWith(shared)) {
      shared = shared.slice(0, shared.slice(0, -1).lastIndexOf(separator) + 1);
    }
    return names.map((name) => name.startsWith(shared) ? name.slice(shared.length) : name);
  }

  // A library's file, from its package on.
  const inPackage = (file) => file.replace(/^.*\/(site|dist)-packages\//, '');

  function read(run) {
    const { places, sites } = run;
    const modules = shortened(sites.module.map(String), '/');
    const own = sites.file.map((file) => /\/(site|dist)-packages\//.test(file) ? '' : file);
    const files = shortened(own, '/').map((file, at) => file || inPackage(sites.file[at]));
    const site = (at) => ({ module: modules[at], line: sites.file[at] ? `${files[at]}:${sites.line[at]}` : '',
      function: sites.function[at] });
    const place = (at) => ({ name: run.names[places.name[at]].replace(/\.default$/, ''), phase: run.phases[places.phase[at]],
      ...site(places.site[at]) });
    const layers = ORDER.map((kind) => run.kinds.indexOf(kind)); // -1: workspace
    const lines = run.steps.number.map((number, at) => ({
      number, count: run.steps.count[at], began: run.steps.began[at] / TICKS, ended: run.steps.ended[at] / TICKS,
      kind: run.steps.kind[at], planned: run.steps.planned[at], ops: run.steps.ops[at], evictions: run.steps.evictions[at],
      replays: run.steps.replays[at], replayed: run.steps.replayed[at] / TICKS, evicted: run.steps.evicted[at],
      layers: layers.map((kind) => kind < 0 ? run.steps.workspace[at] : run.steps.peak[kind][at]) }));
    return { ...run, places: places.name.map((_, at) => place(at)), layers, lines, kept: run.kept,
      step: (at) => step(run, layers, run.kept[at]) };
  }

  // The series of a kept step, from event to event, and its ops, replays and evictions. Times are milliseconds from the
  // step's beginning.
  function step(run, layers, kept) {
    const { blocks } = kept, top = ORDER.length - 1;
    const layerOf = run.kinds.map((_, kind) => layers.indexOf(kind));
    const level = ORDER.map(() => 0), other = ORDER.indexOf('other');
    blocks.there.forEach((there, at) => {
      if (there) level[layerOf[blocks.kind[at]]] += blocks.bytes[at];
    });
    level[other] += Math.max(kept.outside, 0);
    const times = [], series = ORDER.map(() => []), totals = [];
    const ops = [], replays = [], evictions = [];
    const there = new Set(blocks.there.flatMap((is, at) => is ? [at] : []));
    let highest = -1, held = [];
    const sample = (at) => {
      times.push(at);
      let total = 0;
      level.forEach((value, layer) => {
        series[layer].push(value);
        total += value;
      });
      totals.push(total);
      return total;
    };
    sample(0);
    let at = 0, ran = 0, open = null, peak = 0;
    kept.at.forEach((passed, index) => {
      at += passed / TICKS;
      const code = kept.code[index], of = kept.of[index];
      if (open !== null && at !== open.at) {
        level[top] = 0;
        sample(Math.min(open.at + open.took, at));
        open = null;
      }
      if (code === OP || code === REPLAY) {
        const took = kept.took[ran] / TICKS, workspace = kept.workspace[ran];
        ran += 1;
        open = { at, took, place: of, workspace, made: 0 };
        level[top] = workspace;
        (code === OP ? ops : replays).push(open);
      } else if (code === OUTSIDE) {
        level[other] += of;
      } else {
        const size = blocks.bytes[of];
        const more = code === BORN || code === RETURNED;
        level[layerOf[blocks.kind[of]]] += more ? size : -size;
        if (more) there.add(of); else there.delete(of);
        if (more && open !== null) open.made += size;
        if (code === EVICTED) evictions.push({ at, bytes: size, place: blocks.place[of], level: totals[totals.length - 1] });
      }
      const total = sample(at);
      if (total > highest) {
        [highest, peak] = [total, at];
        held = null;
      }
      if (held === null && total === highest) held = new Set(there);
    });
    const took = (kept.ended - kept.began) / TICKS;
    if (open !== null) level[top] = 0;
    sample(Math.max(at, took));
    return { kept, took: Math.max(at, took), times, series, totals, ops, replays, evictions, peak, highest,
      held: [...(held ?? there)].map((block) => ({ bytes: blocks.bytes[block], kind: run.kinds[blocks.kind[block]],
        place: blocks.place[block] })) };
  }

  // Samples of a window, at most two in each of so many parts: the highest, and the last.
  function thinned({ times, totals }, from, to, parts) {
    const low = Math.max(after(times, from) - 1, 0), high = Math.min(after(times, to) + 1, times.length);
    if (high - low <= 2 * parts) return Array.from({ length: high - low }, (_, at) => low + at);
    const chosen = [];
    let part = -1, highest = low, last = low;
    const close = () => {
      if (part < 0) return;
      chosen.push(highest);
      if (last !== highest) chosen.push(last);
    };
    for (let at = low; at < high; at++) {
      const here = Math.floor((times[at] - from) / (to - from) * parts);
      if (here !== part) {
        close();
        [part, highest] = [here, at];
      }
      if (totals[at] > totals[highest]) highest = at;
      last = at;
    }
    close();
    return chosen;
  }

  // The first place whose value is above another.
  function after(sorted, value) {
    let [low, high] = [0, sorted.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Spans of a window wide enough to see: those that touch, of one look, are one.
  function spans(ops, from, to, narrowest, look) {
    const found = [];
    for (const op of ops) {
      if (op.at + op.took < from || op.at > to) continue;
      const last = found[found.length - 1], name = look(op);
      const end = op.at + op.took;
      if (last && last.look === name && (op.at - last.end < narrowest) && (end - last.from < narrowest * 3 || op.took < narrowest)) {
        last.end = Math.max(end, last.end);
      } else {
        found.push({ from: op.at, end, look: name });
      }
    }
    return found;
  }

  // The costs of the run by module or by line, the dearest first.
  function costs(run, key) {
    const groups = new Map();
    run.places.forEach((place, at) => {
      const name = place[key] || (key === 'module' ? 'outside of modules' : 'no line of the program');
      const group = groups.get(name) ?? { name, note: key === 'line' ? place.function : '', replayed: 0, replays: 0, returned: 0,
        evictions: 0, evicted: 0, took: 0 };
      for (const sum of ['replayed', 'replays', 'returned', 'evictions', 'evicted', 'took']) group[sum] += run.costs[sum][at];
      groups.set(name, group);
    });
    return [...groups.values()].filter((group) => group.replays || group.evictions)
      .sort((a, b) => b.replayed - a.replayed || b.evicted - a.evicted)
      .map((group) => ({ ...group, replayed: group.replayed / TICKS, took: group.took / TICKS }));
  }

  // The memory that is held at a step's peak, by module and kind, the largest first.
  function holders(run, { held }) {
    const groups = new Map();
    for (const { bytes, kind, place } of held) {
      const module = run.places[place].module || (place ? 'outside of modules' : '');
      const name = module || 'made by no op of the run';
      const group = groups.get(`${name} ${kind}`) ?? { name, kind, bytes: 0, blocks: 0 };
      group.bytes += bytes;
      group.blocks += 1;
      groups.set(`${name} ${kind}`, group);
    }
    return [...groups.values()].filter((group) => group.bytes).sort((a, b) => b.bytes - a.bytes);
  }

  return { read, thinned, after, spans, costs, holders, bytes, time, count, percent, ORDER };
})();
