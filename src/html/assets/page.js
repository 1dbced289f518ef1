// What the pages' own scripts share: colours of the theme, axes, legends, and when to draw.
'use strict';

const page = (() => {
  const data = JSON.parse(document.getElementById('page-data').textContent);
  const narrow = () => window.innerWidth < 640;
  const color = name =>
      getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
  const seriesColor = item => color('s' + item.series);
  const shorten = name => {
    const limit = narrow() ? 14 : 32;
    return name.length > limit ? name.slice(0, limit - 1) + '…' : name;
  };
  // Marks differ as well as colours; other marks and dashes tell items that share a colour apart.
  const marks = ['circle', 'rectRot', 'triangle', 'rect', 'star', 'crossRot', 'cross', 'rectRounded'];
  const mark = item => marks[(item.series + 3 * item.cycle) % marks.length];
  const dash = item => [[], [6, 3], [2, 3]][item.cycle % 3];

  const digits = (value, decimals) =>
      value === null ? '–' : value.toFixed(decimals).replace('-', '−');
  const compact = value => Intl.NumberFormat('en', {notation: 'compact', maximumFractionDigits: 1})
                               .format(value);
  const exact = value => Intl.NumberFormat('en').format(value);

  const axis = (title, extra = {}) => ({
    ...extra,
    title: {display: true, text: title, color: color('muted')},
    grid: {color: color('rule'), borderColor: color('rule'), ...extra.grid},
    ticks: {color: color('muted'), maxRotation: 0, ...extra.ticks},
  });
  // One legend entry per `group` of datasets; a click hides or shows the whole group.
  const groupLegend = () => ({
    position: 'bottom',
    labels: {
      color: color('ink'), usePointStyle: true, boxHeight: 7,
      filter: (item, data) => data.datasets[item.datasetIndex].leads === true,
    },
    onClick: (event, item, legend) => {
      const chart = legend.chart;
      const group = chart.data.datasets[item.datasetIndex].group;
      const visible = chart.isDatasetVisible(item.datasetIndex);
      chart.data.datasets.forEach((dataset, i) => {
        if (dataset.group === group) chart.setDatasetVisibility(i, !visible);
      });
      chart.update();
    },
  });

  const tooltip = (title, lines) => ({
    backgroundColor: color('ink'), titleColor: color('ground'), bodyColor: color('ground'),
    displayColors: false, padding: 10,
    callbacks: {title: items => items.length ? title(items[0]) : '', label: lines},
  });

  let makers = {};
  let charts = {};

  function draw() {
    Object.values(charts).forEach(chart => chart.destroy());
    Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
    Chart.defaults.animation = false;
    Chart.defaults.maintainAspectRatio = false;
    charts = {};
    for (const [id, make] of Object.entries(makers)) {
      charts[id] = new Chart(document.getElementById(id), make());
    }
  }

  // Says on each canvas whether anything is on it, and on the page when that has been looked at.
  function recordDrawing() {
    for (const canvas of document.querySelectorAll('canvas')) {
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      canvas.dataset.drawn = data.some(byte => byte !== 0) ? 'yes' : 'blank';
    }
    document.documentElement.dataset.charts = 'ready';
  }

  // Draws the charts, `makers[id]()` on the canvas of that id, and again when the theme changes or
  // the page is printed.
  function show(chartMakers) {
    makers = chartMakers;
    for (const plot of document.querySelectorAll('.plot[data-rows]')) {
      plot.style.height = `${6 + 2.4 * plot.dataset.rows}rem`;
    }
    draw();
    requestAnimationFrame(() => requestAnimationFrame(recordDrawing));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', draw);
    const print = printing => () => {
      document.documentElement.classList.toggle('printing', printing);
      draw();
    };
    window.addEventListener('beforeprint', print(true));
    window.addEventListener('afterprint', print(false));
  }

  return {data, narrow, color, seriesColor, shorten, mark, dash, digits, compact, exact, axis,
          groupLegend, tooltip, draw, show};
})();
