// The figures: how each table of numbers (CSV) is read as panels of series. Tables come from Rust, one a figure, with
// facts: numbers that the caption tells and no column holds.
'use strict';
globalThis.remat = (() => {
  const look = (colour, marker, dash = 'solid') => ({ colour, marker, dash });
  const LOOKS = [
    look('blue', 'disc'), look('vermillion', 'square'), look('green', 'diamond'), look('purple', 'up'),
    look('sky', 'down', 'dashed'), look('orange', 'box', 'dashed'), look('black', 'ring', 'dashed'),
    look('grey', 'plus', 'dotted'),
  ];
  const BLACK = look('black', 'none'), PALE = look('pale', 'none');
  const DASHED = look('black', 'none', 'dashed'), DOTTED = look('black', 'none', 'dotted');
  const byPlace = (_, place) => LOOKS[place % LOOKS.length];

  // Policies and strategies look the same in every figure that compares them. Persistent, floating and free plans are
  // often the same: their strokes let a line show through those drawn over it.
  const MAIN = ['dtr', 'dtr-eq', 'dtr-anc', 'dtr-local', 'lru', 'size', 'msps', 'random'];
  const byPolicy = (name) => LOOKS[MAIN.indexOf(name)] ?? look('brown', 'plus');
  const STRATEGIES = {
    persistent: look('blue', 'disc'), floating: look('vermillion', 'box', 'dashed'),
    free: look('green', 'diamond', 'dotted'), revolve: look('purple', 'up'), 'chen-sqrt': look('brown', 'plus'),
    'chen-greedy': look('orange', 'square', 'dashed'), treeverse: look('grey', 'ring'), none: look('black', 'cross'),
  };
  const PLANNED = { plan: look('black', 'disc'), bound: look('black', 'none', 'dashed') };
  const byPlan = (name) => PLANNED[name] ?? byPolicy(name);
  const byStrategy = (name) => STRATEGIES[name] ?? look('sky', 'down');

  // The rows of a table (RFC 4180), each by column.
  function rows(csv) {
    const quoted = (line) => [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)]
      .map(([, cell, plain]) => cell?.replaceAll('""', '"') ?? plain);
    // A quoted cell may hold ends of lines; most tables have no quotes, and are split faster.
    const lines = csv.includes('"') ? csv.match(/(?:"(?:[^"]|"")*"|[^\n"])+/g) : csv.trim().split('\n');
    const [names, ...cells] = lines.map((line) => line.includes('"') ? quoted(line) : line.split(','));
    return cells.map((row) => Object.fromEntries(names.map((name, at) => [name, row[at]])));
  }

  function grouped(list, key) {
    const groups = new Map();
    for (const one of list) {
      const name = key(one);
      if (!groups.has(name)) groups.set(name, []);
      groups.get(name).push(one);
    }
    return groups;
  }
  const unique = (list) => [...new Set(list)];

  // The shortest ends of paths that tell them apart, without the endings of logs; whole names where none does.
  function titles(paths) {
    const short = (name) => name.replace(/(\.(zst|gz|trace|log|dtr|jsonl?))*$/, '') || name;
    const end = (path, parts) => path === '-' ? 'standard input' : short(path.split('/').slice(-parts).join('/'));
    const title = (path) => {
      const ends = path.split('/').map((_, at) => at + 1).filter((parts) =>
        paths.filter((other) => end(other, parts) === end(path, parts)).length === 1);
      const found = [...(ends.length ? end(path, ends[0]) : path)];
      return found.length > 40 ? `…${found.slice(-39).join('')}` : found.join('');
    };
    return new Map(paths.map((path) => [path, title(path)]));
  }

  const UNITS = [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['bytes', 1]];
  const unit = (bytes) => UNITS.find(([, size]) => bytes >= size) ?? UNITS[4];
  function bytes(count) {
    const [name, size] = unit(count);
    return size === 1 ? `${count} bytes` : `${(count / size).toFixed(2)} ${name}`;
  }

  // An axis of these ends, or around values with a little air; a logarithmic one holds values above 0 alone.
  function axis(label, scale, from, to) {
    return { label, scale, from, to: to > from ? to : from + Math.max(Math.abs(from), 1) };
  }
  function around(label, scale, values) {
    const fitting = values.filter((value) => Number.isFinite(value) && (scale === 'linear' || value > 0));
    const [from, to] = fitting.length ? [Math.min(...fitting), Math.max(...fitting)] : [1, 10];
    if (scale === 'log') return axis(label, scale, from / 1.3, to * 1.3);
    return axis(label, scale, from - (to - from) * 0.04, to + (to - from) * 0.04);
  }

  const places = (series, axis) => series.flatMap(({ points }) => points.map((point) => point[axis]));
  const values = (series) => places(series, 'y').filter(Number.isFinite);
  const line = (name, own, points, join = 'straight') => ({ name, look: own, points, join });
  const panel = (title, x, y, series, more = {}) =>
    ({ title, x, y, series, bands: [], notes: null, spans: [], rule: null, ...more });
  const logPanel = (title, x, y, series) =>
    panel(title, around(x, 'log', places(series, 'x')), around(y, 'log', values(series)), series);
  const entry = (name, own) => ({ name, look: own });

  // A run's value, or the reason that it has none.
  const value = (row, y) => row.status === 'ok' ? y : row.status;

  const READ = `Overhead is the cost of all ops run over the cost of the step; 1 is no recomputation. The memory ratio
    is the budget over the peak of the step without a limit. Darker shade: the constants alone; lighter shade: the
    most that a single op reads, makes and works in; no budget inside either can be met. Above each plot, in a lane a
    series: ratios at which the budget cannot be met, and ratios at which the run was given up because more than the
    cost of the step was recomputed.`;

  // Recorded steps, a panel each: a column against the memory ratio, a line a policy.
  function steps(title, caption, own = {}) {
    const { y, label, scale, times, looks, name } = { y: 'overhead', label: 'overhead (×)', scale: 'linear', times: 1,
      looks: byPlace, name: ({ policy }) => policy, ...own };
    const told = (row) => `budget ${bytes(row.budget_bytes)} (${row.budget_bytes} bytes)` + (row.peak_bytes === '' ? ''
      : `\npeak ${bytes(row.peak_bytes)}, ${row.evictions} evictions, ${row.rematerializations} rematerializations`);
    return (all) => {
      const names = unique(all.map(name)), called = titles(unique(all.map(({ log }) => log)));
      const widest = Math.max(1, ...all.map(({ ratio }) => +ratio));
      const panels = [...grouped(all, ({ log }) => log)].map(([log, mine]) => {
        const series = [...grouped(mine, name)].map(([each, runs]) => line(each, looks(each, names.indexOf(each)),
          runs.map((row) => ({ x: +row.ratio, y: value(row, row[y] * times), told: told(row) }))));
        const part = (column) => mine[0][column] / Math.max(mine[0].base_memory_bytes, 1);
        const across = axis('memory ratio (budget / peak without a limit)', 'linear', 0, widest * 1.02);
        const up = y === 'overhead' ? axis(label, scale, 0.98, Math.max(1.05, ...values(series)) * 1.03)
          : around(label, scale, values(series));
        const bands = [[part('bottleneck_bytes'), 'largest op'], [part('const_bytes'), 'constants']];
        return panel(called.get(log), across, up, series, { bands });
      });
      const legend = names.map((each, place) => entry(each, looks(each, place)));
      return { title, caption, columns: 3, panels, legend };
    };
  }

  const ablation = (title, number) => steps(title, `cost / (size * staleness), and the same without size, without
    staleness and without both, for one kind of cost (DTR appendix D.1, figure ${number}). ${READ}`);

  // The linear network of theorem 3.1: all ops, and ops per layer.
  function linear(title, caption, lines) {
    return (all, facts) => {
      const run = (row, by) => ({ x: +row.layers, y: value(row, row.ops / by(row)),
        told: `${row.policy}, B = ${row.bound} = ${row.budget_tensors} tensors, ${row.ops} ops` });
      const formula = (row, by, column) => ({ x: +row.layers, y: row[column] === '' ? null : row[column] / by(row),
        told: `${row[column]} ops` });
      const of = (by) => lines(all).map(({ name, look: own, rows: mine, column }) => line(name, own,
        mine.map((row) => column === 'ops' ? run(row, by) : formula(row, by, column))));
      const panels = [logPanel('all ops', 'layers N', 'ops', of(() => 1)),
        logPanel('ops per layer', 'layers N', 'ops / layer', of(({ layers }) => layers))];
      const bare = ([, [{ look: own }]]) => own.marker === 'none';
      const legend = [...grouped(panels[0].series, ({ name }) => name)].sort((one, other) => bare(one) - bare(other))
        .map(([name, same]) => entry(name, same.length > 1 ? look('grey', 'none', 'dotted') : same[0].look));
      return { title, caption: caption(facts), columns: 2, panels, legend };
    };
  }
  const TREEVERSE = 'Treeverse, B - 2 checkpoints';

  function byPolicies(all) {
    const each = [...grouped(all, ({ policy }) => policy)];
    const formula = (name, own, column) => ({ name, look: own, rows: each[0][1], column });
    return [...each.map(([name, mine]) => ({ name, look: byPolicy(name), rows: mine, column: 'ops' })),
      formula('Chen, ⌈√N⌉ segments', BLACK, 'chen_root_ops'), formula(TREEVERSE, DOTTED, 'treeverse_ops')];
  }

  function byBudgets(all) {
    const last = (mine) => +mine[mine.length - 1].budget_tensors;
    const each = [...grouped(all, ({ bound }) => bound)].sort(([, one], [, other]) => last(one) - last(other));
    const lines = each.flatMap(([bound, mine], place) => [
      { name: `B = ${bound}`, look: { ...LOOKS[place], dash: 'solid' }, rows: mine, column: 'ops' },
      { name: TREEVERSE, look: look(LOOKS[place].colour, 'none', 'dotted'), rows: mine, column: 'treeverse_ops' }]);
    return [...lines, { name: 'Chen, halving', look: BLACK, rows: each[0][1], column: 'chen_halving_ops' }];
  }

  const RESULT = 'result of the layer in memory', GRADIENT = 'gradient of the layer in memory';

  // The linear network: from which op up to which a layer is held without a break.
  function residency(all, { budget }) {
    const layers = Object.keys(all[0]).length - 2, spans = [];
    for (let row = 0; row < layers; row++) {
      all.forEach((op, at) => {
        const held = op[`t${row + 1}`];
        const name = held === '1' ? RESULT : GRADIENT, last = spans[spans.length - 1];
        if (held === '0') return;
        if (last && last.row === row && last.to === at && last.name === name) last.to++;
        else spans.push({ name, row, from: at, to: at + 1, told: `layer ${row + 1}` });
      });
    }
    const turn = all.findIndex(({ phase }) => phase === 'backward');
    return {
      title: 'What is in memory while the linear network runs',
      caption: `N = ${layers} layers, B = 2⌈√N⌉ = ${budget} tensors, policy e-star, banishing (DTR figure 5; 4 of the
        preprint): a row a layer, a column an op performed, ${all.length} in all. The rule marks the first gradient.
        Rows that stay filled are checkpoints, evenly spaced; in the gaps between them the same happens again,
        smaller. Unfilled: not yet computed, evicted, or freed for good.`,
      columns: 1, legend: [entry(RESULT, look('blue', 'square')), entry(GRADIENT, look('orange', 'square'))],
      panels: [panel('', axis('ops performed', 'linear', 0, all.length), axis('layer', 'linear', 0, layers), [],
        { spans, rule: { x: turn, before: 'forward', after: 'backward' } })],
    };
  }

  // The adversary of theorem 3.2; the main policies last, so that they lie on top.
  function adversary(all, { nodes, budget }) {
    const BOUND = 'N²/(2B)', KNOWN = 'order known beforehand';
    const main = [...MAIN.filter((name) => name !== 'random'), 'e-star'];
    const policies = unique(all.map(({ policy }) => policy));
    const shown = [...policies.filter((name) => !main.includes(name)), ...main];
    const drawn = (title, label, fits, x, y, formulas) => {
      const points = (mine, ops, told) => mine.filter(fits).sort((one, other) => one[x] - other[x]).map((row) =>
        ({ x: +row[x], y: y(row, +row[ops]),
          told: `${told} N = ${row.nodes}, B = ${row.budget_tensors}, ${row[ops]} ops` }));
      const mine = (name) => all.filter(({ policy }) => policy === name);
      const series = shown.map((name) => main.includes(name) ? line(name, byPolicy(name), points(mine(name), 'ops', ''))
        : line('ablations', PALE, points(mine(name), 'ops', `${name},`)));
      const more = formulas.map(([name, own, column]) => line(name, own, points(mine(policies[0]), column, '')));
      return logPanel(title, x === 'nodes' ? 'nodes N' : 'budget B (tensors)', label, [...series, ...more]);
    };
    const atBudget = (row) => +row.budget_tensors === budget, atNodes = (row) => +row.nodes === nodes;
    const both = [[BOUND, DASHED, 'bound_ops'], [KNOWN, DOTTED, 'static_ops']], ops = (_, count) => count;
    const excess = (row, count) => count / row.bound_ops;
    return {
      title: 'Theorem 3.2: what an adversary forces any policy to',
      caption: `A graph of N nodes on B paths from one root, drawn while the policy decides: the next node goes to the
        end of a path of which nothing is resident, so that the whole path is recomputed (DTR theorem 3.2, appendix
        B). Every deterministic policy takes at least N²/(2B) ops; an order known beforehand takes N. Left: B =
        ${budget}. Middle: N = ${nodes}. Right: ops over N²/(2B), B = ${budget}; equally long paths come to 1 + B/N,
        what is above is the policy's own doing. Policies forced to the same lie on one another. The ablations of the
        score are drawn grey; the pointer and the CSV name all.`,
      columns: 3,
      panels: [
        drawn('ops by nodes', 'ops', atBudget, 'nodes', ops, both),
        drawn('ops by budget', 'ops', atNodes, 'budget_tensors', ops, both),
        drawn('ops over the bound', 'ops / (N²/(2B))', atBudget, 'nodes', excess, both.slice(0, 1)),
      ],
      legend: [...main.map((name) => entry(name, byPolicy(name))), entry('ablations', PALE),
        ...both.map(([name, own]) => entry(name, own))],
    };
  }

  // Chains, a panel each: throughput against memory, a line a strategy.
  function chains(all) {
    const called = titles(unique(all.map(({ chain }) => chain)));
    const panels = [...grouped(all, ({ chain }) => chain)].map(([chain, own]) => {
      const ok = ({ status }) => status === 'ok', peaks = own.filter(ok).map((row) => +row.budget_bytes);
      const [name, size] = unit(Math.sqrt(Math.min(...peaks) * Math.max(...peaks)));
      const curves = [...grouped(own, ({ strategy }) => strategy)];
      const point = (row) => ({ x: row.budget_bytes / size, y: +row.throughput,
        told: `peak ${row.budget_bytes} bytes, makespan ${(+row.makespan).toFixed(4)}` });
      const series = curves.map(([strategy, mine]) =>
        line(strategy, byStrategy(strategy), mine.filter(ok).map(point), 'stairs'));
      const lines = curves.map(([strategy, [{ smallest_bytes: smallest, status }]]) => ({
        name: strategy, look: byStrategy(strategy), at: smallest === '' ? null : smallest / size,
        text: smallest === '' ? 'left out' : bytes(+smallest), told: status }));
      const stages = own[0].stages === '1' ? '1 stage' : `${own[0].stages} stages`;
      const lowest = Math.max(0, Math.min(1, ...values(series)) - 0.05);
      return panel(`${called.get(chain)} (${stages})`, around(`peak memory (${name})`, 'log', places(series, 'x')),
        axis('throughput (1: nothing recomputed)', 'linear', lowest, 1.03), series,
        { notes: { heading: 'smallest feasible budget', lines } });
    });
    const drawn = unique(all.filter(({ status }) => status === 'ok').map(({ strategy }) => strategy));
    return {
      title: 'Throughput against memory of chains, by strategy',
      caption: `Each chain of stages within budgets, by how it is planned (Beaumont et al. 2024, figures 6 to 8): the
        throughput of the best plan, 1 being that of a step that recomputes nothing, against the peak of its
        activations, gradients of activations and workspace, as the planner counts them. A plan holds up to the next
        step of its line; on lines that have many, not every plan has a marker. Where strategies have the same plans,
        one shows through the others. Above each plot: the smallest budget in which each strategy has a plan, or that
        it is left out. Memory is planned in 500 slots of what keeping everything takes, of a half of it, a quarter
        and so on; the smallest budgets are planned to the byte.`,
      columns: 2, panels, legend: drawn.map((name) => entry(name, byStrategy(name))),
    };
  }

  // Planning time against the length of chains: the medians over the budgets, and bars from the shortest to the longest.
  function growth(all, { limit }) {
    const curves = [...grouped(all, ({ strategy }) => strategy)].map(([strategy, own]) => {
      const name = own[0].slope === '' ? strategy : `${strategy}, about L to the power ${(+own[0].slope).toFixed(1)}`;
      const timed = [...grouped(own, ({ stages }) => stages)].map(([stages, plans]) =>
        [+stages, plans.map(({ seconds }) => +seconds).sort((one, other) => one - other)]);
      const ends = (times) => [times[0], times[times.length - 1]];
      const told = (times) => `${ends(times).map((time) => time.toExponential(2)).join(' to ')} s over the budgets`;
      const bare = { ...byStrategy(strategy), marker: 'none' };
      const bar = ([x, times]) => line(name, bare, ends(times).map((y) => ({ x, y, told: '' })));
      const medians = timed.map(([x, times]) => ({ x, y: times[times.length >> 1], told: told(times) }));
      const series = [...timed.map(bar), line(name, byStrategy(strategy), medians)];
      return { name, look: byStrategy(strategy), series };
    });
    return {
      title: 'Planning time against the length of the chain',
      caption: `Seconds to make one plan, tables and sequence, on one core (Beaumont et al. 2024, figure 5): synthetic
        chains in the form of a deep residual network, 500 slots, budgets of a third, a half and two thirds of what
        keeping everything takes. Points are medians over the budgets, bars reach from the shortest to the longest. L
        to the power that is given is the straight line through the longer half of the points, by least squares on the
        logarithms. A strategy is not tried on lengths that might make it spend more than ${limit} s in all.`,
      columns: 1, legend: curves, panels: [logPanel('time to plan a chain of L stages', 'stages L', 'planning time (s)',
        curves.flatMap(({ series }) => series))],
    };
  }

  const DEALLOCATIONS = { eager: 'eager', banish: 'banishing', ignore: 'ignoring' };

  const FIGURES = {
    overhead: steps('Overhead against memory, by policy',
      `Each log inside budgets, by eviction policy, eager eviction (DTR preprint, figures 2 and 3). ${READ}`,
      { looks: byPolicy }),
    planned: steps('Planned steps beside policies',
      `Each log inside budgets: four policies, which decide while the step runs; plan, the cheapest schedule found of the
        whole step (remat plan step), run in the engine; and bound, below which no schedule lies whose first runs are
        in program order. DTR figure 3 compares with plans so, of a planner that is exact and takes minutes. No bound is
        drawn where no plan was found. ${READ}`,
      { looks: byPlan }),
    'ablation-exact': ablation('Score without terms, cost of the exact evicted neighbourhood', 7),
    'ablation-eq': ablation('Score without terms, cost of union-find components', 8),
    'ablation-local': ablation('Score without terms, cost of the op alone', 9),
    'ablation-no': ablation('Score without terms, no cost', 10),
    deallocation: steps('What happens to what the program lets go of',
      `Evicted at once (eager), freed for good as soon as nothing evicted was computed from it (banishing), or left
        alone (ignoring), under two scores (DTR appendix D.2, figure 11). ${READ}`,
      { looks: (_, place) => ({ ...LOOKS[place], dash: place < 3 ? 'solid' : 'dashed' }),
        name: ({ policy, dealloc }) => `${policy}, ${DEALLOCATIONS[dealloc]}` }),
    accesses: steps('Metadata accesses while deciding',
      `Storages looked at to score candidates and to keep neighbourhoods up to date, each score counted as one (DTR
        appendix D.3, figure 12). Runs that evict nothing have no point on the logarithmic axis. Marks above the plots
        and shades as in the figure of overheads.`,
      { y: 'metadata_accesses', label: 'metadata accesses', scale: 'log', looks: byPolicy }),
    evaluations: steps('Scores evaluated while deciding',
      `Candidates scored in all searches together: the part of the metadata accesses that an index over the
      candidates can save.`,
      { y: 'score_evaluations', label: 'score evaluations', scale: 'log', looks: byPolicy }),
    'arena-overhead': steps('Overhead against memory in an arena',
      `Each log in one arena of exactly the budget, by eviction policy (Coop, figure 4): coop evicts neighbours, all
        others one storage after the other until a block is large enough; sar recomputes attention, whatever the
        budget, and stands only where a log has any. ${READ}`),
    'arena-latency': steps('Search latency in an arena',
      `Wall time of the searches for what to evict, for each block that was not to be had without evicting, mean
        (Coop, figure 5). It depends on the machine and on what else it does; all else in these figures does not. Runs
        that evict nothing have no point.`,
      { y: 'search_ns_mean', label: 'search latency (ns)', scale: 'log' }),
    'arena-fragmentation': steps('Fragmentation of an arena',
      `Part of the arena that is free once a block was taken that was not to be had without evicting, mean over all
        such blocks (Coop, figure 6).`, { y: 'fragmentation_mean', times: 100, label: 'fragmentation (%)' }),
    'linear-policies': linear('Theorem 3.1: ops of the linear network, by policy', (facts) =>
      `One step of N layers within B = 2⌈√N⌉ tensors, banishing (DTR theorem 3.1 and appendix A): all ops run,
        forward, backward and recomputed, and the same per layer; without a limit 2. With e-star the ops per layer
        stay below a constant. Chen, ⌈√N⌉ segments, fits the same memory (Chen et al. 2016, section 4.1). Treeverse is
        the fewest ops with B - 2 checkpoints, the input included (Griewank and Walther 2000), which knows N
        beforehand. Policies that take equally many ops lie on one another. A run is given up once it recomputed
        ${facts.give_up} times the step.`, byPolicies),
    'linear-budgets': linear('Theorem 3.1: ops of the linear network, by budget', (facts) =>
      `Ops with e-star inside budgets that grow differently with N, and the fewest that Treeverse takes with B - 2
        checkpoints (dotted, same colour). Chen, halving: memory log₂ N (Chen et al. 2016, section 4.3). A run is
        given up once it recomputed ${facts.give_up} times the step.`, byBudgets),
    residency, adversary, chains, growth,
  };

  // What is known of steps and chains, as tables for the page: headings, and rows of which the first names the columns.
  function known({ name, csv }) {
    const first = (key) => [...grouped(rows(csv), key).values()].map(([row]) => row);
    if (name === 'overhead') {
      return [['Recorded steps', [['log', 'peak without a limit', 'cost (ms)', 'constants', 'largest op'],
        ...first(({ log }) => log).map((row) => [row.log, bytes(row.base_memory_bytes),
          (row.base_cost_ns / 1e6).toFixed(2), bytes(row.const_bytes), bytes(row.bottleneck_bytes)])]]];
    }
    if (name !== 'chains') return [];
    return [['Chains', [['chain', 'strategy', 'smallest feasible budget', 'bytes'],
      ...first(({ chain, strategy }) => `${chain} ${strategy}`).map((row) => [row.chain, row.strategy,
        row.status === 'ok' ? bytes(+row.smallest_bytes) : row.status, row.smallest_bytes])]]];
  }

  function figure({ name, csv, facts }) {
    if (!FIGURES[name]) throw new Error(`no figure is called ${name}`);
    return { name, ...FIGURES[name](rows(csv), facts) };
  }
  return { figure, known };
})();
