// Draws the charts of a comparison report.
(() => {
  const {narrow, color, seriesColor, shorten, mark, dash, digits, compact, exact, axis, groupLegend,
         tooltip, draw} = page;
  const report = page.data;
  const variants = report.variants;
  const rivals = variants.filter(variant => !variant.baseline);
  // Names of variants instead of their indices.
  const nameAxis = (shown, extra) => ({
    ...extra,
    grid: {display: false, borderColor: color('rule')},
    ticks: {color: color('ink'), callback: i => shorten(shown[i].name)},
  });
  const tokensAxis = () => axis('training tokens', {
    type: 'linear', min: 0, ticks: {callback: compact, maxTicksLimit: 7}});

  // Names the reference lines inside the chart, at their right end.
  const referenceLabels = {
    id: 'referenceLabels',
    afterDatasetsDraw(chart) {
      const {ctx, chartArea} = chart;
      ctx.save();
      ctx.font = `12px ${Chart.defaults.font.family}`;
      ctx.fillStyle = color('muted');
      ctx.strokeStyle = color('surface');
      ctx.lineWidth = 4;
      ctx.lineJoin = 'round';
      ctx.textAlign = 'right';
      chart.data.datasets.forEach((dataset, i) => {
        if (!dataset.reference || !chart.isDatasetVisible(i)) return;
        const y = chart.scales.y.getPixelForValue(dataset.data[0].y);
        if (y > chartArea.top && y < chartArea.bottom) {
          ctx.strokeText(dataset.reference, chartArea.right - 4, y - 5);
          ctx.fillText(dataset.reference, chartArea.right - 4, y - 5);
        }
      });
      ctx.restore();
    },
  };

  function differences() {
    const datasets = [];
    rivals.forEach((variant, row) => {
      if (variant.difference === null) return;
      const shared = {borderColor: seriesColor(variant), backgroundColor: seriesColor(variant), variant};
      const at = x => ({x, y: row});
      if (variant.half_width !== null) {
        const ends = [variant.difference - variant.half_width, variant.difference + variant.half_width];
        datasets.push({...shared, data: ends.map(at), showLine: true, borderWidth: 2,
                       pointStyle: 'line', rotation: 90, pointRadius: 6, pointBorderWidth: 2});
      }
      datasets.push({...shared, data: variant.seed_differences.map(at), pointRadius: 3,
                     backgroundColor: seriesColor(variant) + '80', borderWidth: 0});
      datasets.push({...shared, data: [at(variant.difference)], pointStyle: mark(variant),
                     pointRadius: 7, pointBorderWidth: 2});
    });
    return {
      type: 'scatter',
      data: {datasets},
      options: {
        scales: {
          x: axis('difference, bits per byte (left is better)', {
            suggestedMin: 0, suggestedMax: 0,
            grid: {color: tick => color(tick.tick.value === 0 ? 'ink' : 'rule')},
            ticks: {maxTicksLimit: narrow() ? 5 : 11}}),
          y: nameAxis(rivals, {
            min: -0.5, max: rivals.length - 0.5, reverse: true,
            afterBuildTicks: scale => { scale.ticks = rivals.map((_, i) => ({value: i})); }}),
        },
        plugins: {
          legend: {display: false},
          tooltip: tooltip(item => item.dataset.variant.name,
                           item => [digits(item.parsed.x, 4) + ' bits per byte',
                                    item.dataset.variant.verdict]),
        },
      },
    };
  }

  // Where the shown part of the curves begins, as a fraction of the run.
  const viewStart = {validation: 0, training: 0.5};

  // Curves of every run; `points` picks [tokens, value, ...] of a run. References are drawn where
  // the whole run is shown: the second half's scale is too fine for them.
  function curves(id, points, valueAxis, describe, references) {
    const datasets = [];
    for (const variant of variants) {
      variant.runs.filter(run => points(run).length > 0).forEach((run, i) => {
        const data = points(run).map(point => ({x: point[0], y: point[1], point}));
        datasets.push({
          label: variant.name, group: variant.name, leads: i === 0, run, data,
          borderColor: seriesColor(variant), backgroundColor: seriesColor(variant),
          borderDash: dash(variant), borderWidth: 1.5, pointStyle: mark(variant),
          pointRadius: data.length > 40 ? 0 : 2, pointHitRadius: 8,
        });
      });
    }
    const end = Math.max(0, ...datasets.flatMap(dataset => dataset.data.map(point => point.x)));
    for (const {name, bits_per_byte} of viewStart[id] === 0 ? references : []) {
      datasets.push({
        reference: `${name}: ${digits(bits_per_byte, 3)}`,
        data: [{x: 0, y: bits_per_byte}, {x: end, y: bits_per_byte}],
        borderColor: color('muted'), borderDash: [4, 4], borderWidth: 1, pointRadius: 0,
        pointHitRadius: 0,
      });
    }
    return {
      type: 'line',
      data: {datasets},
      plugins: [referenceLabels],
      options: {
        interaction: {mode: 'nearest', intersect: false},
        scales: {x: {...tokensAxis(), min: viewStart[id] * end, max: end}, y: axis(valueAxis)},
        plugins: {
          legend: groupLegend(),
          tooltip: {
            ...tooltip(item => `${item.dataset.label}, seed ${item.dataset.run.seed}`,
                       item => [...describe(item.raw.point), exact(item.parsed.x) + ' tokens']),
            filter: item => !item.dataset.reference,
          },
        },
      },
    };
  }

  const validation = () => curves(
      'validation', run => run.validation, 'bits per byte',
      ([, bits, nats]) => [digits(bits, 4) + ' bits per byte', digits(nats, 4) + ' nats per token'],
      report.compressors);
  const training = () => curves(
      'training', run => run.training, 'loss, nats per token',
      ([, nats]) => [digits(nats, 4) + ' nats per token'], []);

  // The means of a family at each value (to three digits), in the order of the values.
  function familyLine(family, values) {
    const byValue = new Map();
    variants.forEach((variant, i) => {
      if (variant.family !== family || variant.loss === null) return;
      const x = Number(values[i].toPrecision(3));
      byValue.set(x, [...(byValue.get(x) ?? []), variant.loss]);
    });
    return [...byValue].sort(([a], [b]) => a - b).map(
        ([x, losses]) => ({x, y: losses.reduce((a, b) => a + b) / losses.length}));
  }

  // Families with enough members are joined by a line, so that the shape of the dependence shows.
  function trend({axis: title, values}) {
    const datasets = [];
    variants.forEach((variant, i) => {
      if (variant.loss === null) return;
      const shared = {borderColor: seriesColor(variant), backgroundColor: seriesColor(variant), variant};
      datasets.push({...shared, label: variant.name, group: variant.name, leads: true, order: 1,
                     data: [{x: values[i], y: variant.loss}], pointStyle: mark(variant),
                     pointRadius: 7, pointBorderWidth: 2});
      datasets.push({...shared, group: variant.name, order: 2, pointRadius: 3, borderWidth: 0,
                     backgroundColor: seriesColor(variant) + '80',
                     data: variant.runs.filter(run => run.loss !== null)
                               .map(run => ({x: values[i], y: run.loss}))});
    });
    for (const family of new Set(variants.map(variant => variant.family))) {
      const data = familyLine(family, values);
      if (data.length < 3) continue;
      datasets.push({data, group: family, order: 3, showLine: true, pointRadius: 0, borderWidth: 1,
                     pointHitRadius: 0, borderColor: color('muted')});
    }
    return {
      type: 'scatter',
      data: {datasets},
      options: {
        scales: {x: axis(title, {grace: '8%'}), y: axis('validation loss, nats per token', {grace: '8%'})},
        plugins: {
          legend: groupLegend(),
          tooltip: {
            ...tooltip(item => item.dataset.variant.name,
                       item => [digits(item.parsed.y, 4) + ' nats per token',
                                'perplexity ' + digits(Math.exp(item.parsed.y), 3),
                                `${title}: ${+item.parsed.x.toPrecision(4)}`]),
            filter: item => item.dataset.variant !== undefined,
          },
        },
      },
    };
  }

  function parameters() {
    const parts = [['attention', 'attention'], ['ffn', 'FFN'], ['norms', 'norms'],
                   ['embeddings', 'embeddings']];
    return {
      type: 'bar',
      data: {
        labels: variants.map(variant => variant.name),
        datasets: parts.map(([part, label]) => ({
          label, data: variants.map(variant => variant.counts[part]),
          backgroundColor: color(part), barPercentage: 0.7,
        })),
      },
      options: {
        indexAxis: 'y',
        scales: {
          x: axis('parameters', {stacked: true, ticks: {callback: compact, maxTicksLimit: 8}}),
          y: nameAxis(variants, {stacked: true}),
        },
        plugins: {
          legend: {position: 'bottom', labels: {color: color('ink'), boxWidth: 12, boxHeight: 12}},
          tooltip: tooltip(item => item.label, item => {
            const total = Object.values(variants[item.dataIndex].counts).reduce((a, b) => a + b);
            return `${item.dataset.label}: ${exact(item.parsed.x)} ` +
                   `(${digits(100 * item.parsed.x / total, 1)} %)`;
          }),
        },
      },
    };
  }

  const makers = {differences, validation, training, parameters};
  report.trends.forEach((data, i) => { makers['trend-' + i] = () => trend(data); });
  // Curves flatten out long before they end: one view shows the second half at its own scale.
  function addViews(id) {
    const group = document.createElement('span');
    group.className = 'views';
    const views = [['whole run', 0], ['second half', 0.5]];
    for (const [label, from] of views) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = label;
      button.setAttribute('aria-pressed', from === viewStart[id]);
      button.addEventListener('click', () => {
        viewStart[id] = from;
        draw();
        for (const other of group.children) other.setAttribute('aria-pressed', other === button);
      });
      group.append(button);
    }
    document.getElementById(id).closest('figure').querySelector('figcaption').prepend(group);
  }

  page.show(makers);
  addViews('validation');
  addViews('training');
})();
