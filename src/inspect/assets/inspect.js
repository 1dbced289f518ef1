// Draws one chart for each quantity: its value over the place of the sub-layer in the list.
(() => {
  const {data: snapshots, color, seriesColor, shorten, dash, axis, groupLegend, tooltip} = page;
  const isAttention = subLayer => subLayer.name.endsWith('.attention');
  const place = (i, count) => count > 1 ? i / (count - 1) : 0;

  function overDepth(quantity, title, scale) {
    const started = new Set();
    const datasets = snapshots.map(snapshot => {
      const all = snapshot.sub_layers;
      const points = all.map((subLayer, i) => ({x: place(i, all.length), y: subLayer[quantity], subLayer}))
                         .filter(point => point.y !== null && (scale !== 'logarithmic' || point.y > 0));
      const leads = !started.has(snapshot.group);
      started.add(snapshot.group);
      return {
        label: shorten(snapshot.name), group: snapshot.group, leads, snapshot, data: points,
        borderColor: seriesColor(snapshot), backgroundColor: seriesColor(snapshot),
        borderDash: dash(snapshot), borderWidth: 1.5, showLine: true, spanGaps: true,
        pointStyle: points.map(point => isAttention(point.subLayer) ? 'rect' : 'circle'),
        pointRadius: points.map(point => isAttention(point.subLayer) ? 4 : 2),
      };
    });
    return {
      type: 'scatter',
      data: {datasets},
      options: {
        interaction: {mode: 'nearest', intersect: false},
        scales: {
          x: axis('depth, from the first sub-layer to the last', {min: 0, max: 1, ticks: {maxTicksLimit: 6}}),
          y: axis(title, {type: scale, ticks: {maxTicksLimit: 8}}),
        },
        plugins: {
          legend: groupLegend(),
          tooltip: tooltip(
              item => `${item.dataset.snapshot.name}, seed ${item.dataset.snapshot.seed}`,
              item => `${item.raw.subLayer.name}: ${+item.parsed.y.toPrecision(4)}`),
        },
      },
    };
  }

  page.show({
    output_rms: () => overDepth('output_rms', 'RMS', 'logarithmic'),
    share: () => overDepth('share', 'added / result', 'linear'),
    angle: () => overDepth('angle', 'half turns', 'linear'),
    gradient_rms: () => overDepth('gradient_rms', 'norm', 'logarithmic'),
    weight_gradient_norm: () => overDepth('weight_gradient_norm', 'norm', 'logarithmic'),
    relative_entropy: () => overDepth('relative_entropy', 'entropy / log(keys)', 'linear'),
    largest_logit: () => overDepth('largest_logit', 'logit', 'linear'),
  });
})();
