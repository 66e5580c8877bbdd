// Draws the charts of the page with uPlot, and filters claims. The data stands in the page, as JSON; a chart is drawn when it comes near the screen.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const isDark = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const MARK = 4;

  // Each draws a mark around (0, 0), of radius r.
  const polygon = (points) => (ctx, r) => {
    points.forEach(([x, y], i) => (i ? ctx.lineTo(x * r, y * r) : ctx.moveTo(x * r, y * r)));
    ctx.closePath();
  };
  const circle = (ctx, r) => ctx.arc(0, 0, r, 0, 2 * Math.PI);
  const square = polygon([[-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]]);
  const up = polygon([[0, -1.2], [1.1, 0.9], [-1.1, 0.9]]);
  const down = polygon([[0, 1.2], [1.1, -0.9], [-1.1, -0.9]]);
  const diamond = polygon([[0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]]);
  const lines = (list) => (ctx, r) => list.forEach(([a, b, c, d]) => { ctx.moveTo(a * r, b * r); ctx.lineTo(c * r, d * r); });
  const cross = lines([[-1, -1, 1, 1], [-1, 1, 1, -1]]);
  const plus = lines([[-1.2, 0, 1.2, 0], [0, -1.2, 0, 1.2]]);
  // Shape, and how it is drawn: filled, open or as lines. The order is that of `looks.rs`.
  const MARKS = [[circle, "filled"], [square, "filled"], [up, "filled"], [diamond, "filled"], [down, "filled"],
    [circle, "open"], [square, "open"], [up, "open"], [cross, "lines"], [plus, "lines"]];

  const mark = (ctx, number, x, y, colour, scale) => {
    const [shape, how] = MARKS[number];
    ctx.save();
    ctx.translate(x, y);
    ctx.setLineDash([]);
    ctx.lineWidth = 1.6 * scale;
    ctx.strokeStyle = colour;
    ctx.beginPath();
    shape(ctx, MARK * scale);
    if (how !== "lines") {
      ctx.fillStyle = how === "filled" ? colour : css("--page");
      ctx.fill();
    }
    ctx.stroke();
    ctx.restore();
  };

  const colourOf = (look) => data.colours[isDark.matches ? "dark" : "light"][look.colour];
  const shown = (number) => {
    if (number === null || number === undefined) return "not reached";
    const size = Math.abs(number);
    return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3);
  };
  const spread = (value, half) => (half ? `${shown(value)} ± ${shown(half)}` : shown(value));
  const element = (name, text, parent) => {
    const made = document.createElement(name);
    if (text) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  };

  // Error bars, marks and the paper's values of one series.
  const points = (chart, hidden) => (plot, number) => {
    if (number === 0 || hidden.has(number - 1)) return;
    const [series, ctx, scale] = [chart.series[number - 1], plot.ctx, uPlot.pxRatio];
    const colour = colourOf(series.look);
    const at = (value, axis) => plot.valToPos(value, axis, true);
    const bar = (x, low, high, width) => {
      ctx.beginPath();
      ctx.moveTo(x, at(low, "y"));
      ctx.lineTo(x, at(high, "y"));
      for (const end of [low, high]) {
        ctx.moveTo(x - width, at(end, "y"));
        ctx.lineTo(x + width, at(end, "y"));
      }
      ctx.stroke();
    };
    ctx.save();
    ctx.rect(plot.bbox.left - 8 * scale, plot.bbox.top - 8 * scale, plot.bbox.width + 16 * scale, plot.bbox.height + 16 * scale);
    ctx.clip();
    ctx.strokeStyle = colour;
    ctx.setLineDash([]);
    chart.x.values.forEach((place, i) => {
      const value = series.values[i];
      if (value === null) return;
      const [x, half] = [at(place, "x"), series.half_widths[i]];
      ctx.lineWidth = 1.2 * scale;
      // A logarithmic axis has no place for what is not above zero.
      if (half) bar(x, chart.y.distribution === 3 ? Math.max(value - half, plot.scales.y.min) : value - half, value + half, 4 * scale);
      mark(ctx, series.look.mark, x, at(value, "y"), colour, scale);
    });
    for (const paper of chart.paper.filter((value) => value.series_index === number - 1)) {
      const x = at(paper.axis_value, "x");
      ctx.lineWidth = 2.4 * scale;
      ctx.strokeStyle = colour;
      if (paper.high > paper.low) bar(x, paper.low, paper.high, 7 * scale);
      for (const value of new Set([paper.low, paper.high])) {
        const [y, r] = [at(value, "y"), 7 * scale];
        ctx.beginPath();
        for (const side of [-1, 1]) { ctx.moveTo(x - r, y - side * r); ctx.lineTo(x + r, y + side * r); }
        ctx.stroke();
      }
    }
    ctx.restore();
  };

  const hover = (chart, box, hidden) => (plot) => {
    const i = plot.cursor.idx;
    if (i === null || i === undefined || plot.cursor.left < 0) { box.hidden = true; return; }
    box.replaceChildren();
    element("b", `${chart.x.label} ${chart.x.values[i]}`, box);
    chart.series.forEach((series, number) => {
      if (hidden.has(number)) return;
      const line = element("div", "", box);
      swatch(series.look, line);
      const without = series.seeds_without[i] && series.values[i] !== null ? `, not reached in ${series.seeds_without[i]} seeds` : "";
      line.append(` ${series.label}: ${spread(series.values[i], series.half_widths[i])}${without}`);
      const paper = chart.paper.find((value) => value.series_index === number && value.axis_value === chart.x.values[i]);
      if (paper) line.append(`, paper ${paper.low === paper.high ? shown(paper.low) : `${shown(paper.low)} to ${shown(paper.high)}`}`);
    });
    box.hidden = false;
    const left = plot.cursor.left + plot.over.offsetLeft;
    box.style.left = `${left > plot.width / 2 ? Math.max(0, left - box.offsetWidth - 12) : left + 12}px`;
    box.style.top = `${plot.over.offsetTop + 4}px`;
  };

  // A piece of a curve, as the legend shows it.
  const swatch = (look, parent) => {
    const canvas = element("canvas", "", parent);
    const scale = uPlot.pxRatio;
    [canvas.width, canvas.height, canvas.className] = [36 * scale, 14 * scale, "swatch"];
    const ctx = canvas.getContext("2d");
    ctx.strokeStyle = colourOf(look);
    ctx.lineWidth = 2 * scale;
    ctx.setLineDash(data.dashes[look.dash].map((length) => length * scale));
    ctx.beginPath();
    ctx.moveTo(0, 7 * scale);
    ctx.lineTo(36 * scale, 7 * scale);
    ctx.stroke();
    mark(ctx, look.mark, 18 * scale, 7 * scale, colourOf(look), scale);
  };

  const legend = (chart, figure, hidden, redraw) => {
    const list = element("div", "", figure);
    list.className = "legend";
    chart.series.forEach((series, number) => {
      const item = element("button", "", list);
      item.type = "button";
      item.setAttribute("aria-pressed", String(!hidden.has(number)));
      item.title = "show or hide";
      swatch(series.look, item);
      item.append(series.label);
      item.onclick = () => { if (!hidden.delete(number)) hidden.add(number); redraw(); };
    });
    if (chart.paper.length) element("span", "✕ the paper's value, coloured as its curve", list);
    if (chart.series.some((series) => series.half_widths.some((half) => half > 0))) element("span", "bars: 95 % confidence over seeds", list);
  };

  const range = (chart, hidden) => {
    let [low, high] = [Infinity, 0];
    const see = (value) => { if (Number.isFinite(value)) { if (value > 0) low = Math.min(low, value); high = Math.max(high, value); } };
    chart.series.forEach((series, number) => {
      if (!hidden.has(number)) series.values.forEach((value, i) => { if (value !== null) { see(value); see(value + series.half_widths[i]); } });
    });
    chart.paper.forEach((paper) => { if (!hidden.has(paper.series_index)) { see(paper.low); see(paper.high); } });
    if (high === 0) return [0, 1];
    if (chart.y.distribution === 3) return [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.0001))];
    return [0, chart.y.unit === "%" ? Math.min(high * 1.08, Math.max(105, high)) : high * 1.08];
  };

  const draw = (figure) => {
    const chart = data.charts[Number(figure.dataset.chart)];
    const hidden = (figure.hiddenSeries ||= new Set());
    figure.plot?.destroy();
    figure.querySelectorAll(".plot, .legend, .hint").forEach((part) => part.remove());
    const place = element("div", "", figure);
    place.className = "plot";
    const inner = element("div", "", place);
    inner.className = "inner";
    const box = element("div", "", inner);
    [box.className, box.hidden] = ["hover", true];
    const [ink, grid] = [css("--ink"), css("--line")];
    const axis = { stroke: ink, grid: { stroke: grid, width: 1 }, ticks: { stroke: grid }, font: "13px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif", labelSize: 20 };
    const x = chart.x.values;
    const margin = (x[x.length - 1] - x[0]) * 0.03;
    const ends = chart.x.distribution === 3 ? [x[0] / 1.15, x[x.length - 1] * 1.15] : [x[0] - margin, x[x.length - 1] + margin];
    const places = (plot, values) => values.map((value) => (value === null ? "" : String(value)));
    // No measure is below zero.
    const numbers = (plot, values) => values.map((value) => (value === null || value < 0 ? "" : String(+value.toPrecision(4))));
    const series = chart.series.map((series, number) => ({
      label: series.label, stroke: colourOf(series.look), width: 2, dash: data.dashes[series.look.dash],
      points: { show: false }, spanGaps: false, show: !hidden.has(number),
    }));
    figure.plot = new uPlot({
      width: inner.clientWidth, height: 320, legend: { show: false }, cursor: { drag: { x: false, y: false }, points: { size: 7 } },
      scales: {
        x: { time: false, distr: chart.x.distribution, log: 2, range: ends },
        y: { distr: chart.y.distribution, log: 10, range: () => range(chart, hidden) },
      },
      axes: [
        { ...axis, label: chart.x.label, values: places, splits: () => x.filter((_, i) => x.length <= 12 || i % Math.ceil(x.length / 12) === 0), grid: { show: false } },
        { ...axis, label: `${chart.y.label}, ${chart.y.unit}${chart.y.distribution === 1 ? "" : " (logarithmic)"}`, size: 62, values: numbers },
      ],
      series: [{ label: chart.x.label }, ...series],
      hooks: { drawSeries: [points(chart, hidden)], setCursor: [hover(chart, box, hidden)] },
    }, [x, ...chart.series.map((series) => series.values)], inner);
    inner.append(box);
    if (inner.clientWidth > place.clientWidth + 2) {
      const hint = element("p", "⇠ the plot is wider than the screen: swipe it sideways ⇢", figure);
      hint.className = "hint";
    }
    legend(chart, figure, hidden, () => draw(figure));
  };

  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const observer = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) if (isIntersecting && !target.plot) draw(target);
  }, { rootMargin: "800px" });
  figures.forEach((figure) => observer.observe(figure));
  const again = () => figures.filter((figure) => figure.plot).forEach(draw);
  isDark.addEventListener("change", again);
  let width = innerWidth;
  addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; again(); } });
  addEventListener("beforeprint", () => figures.filter((figure) => !figure.plot).forEach(draw));

  // Tables that are wider than the screen say so.
  const hints = () => document.querySelectorAll(".wide").forEach((wide) => wide.classList.toggle("scrolls", wide.scrollWidth > wide.clientWidth + 2));
  document.querySelectorAll("details").forEach((details) => details.addEventListener("toggle", hints));
  addEventListener("resize", hints);
  hints();

  // The filter: by paper, by verdict, by words.
  const [paper, verdict, words, count] = ["paper", "verdict", "words", "count"].map((id) => document.getElementById(id));
  const rows = [...document.querySelectorAll("tr[data-verdict]")];
  const filter = () => {
    const wanted = words.value.trim().toLowerCase();
    let left = 0;
    for (const row of rows) {
      const fits = (!paper.value || row.dataset.paper === paper.value) && (!verdict.value || row.dataset.verdict === verdict.value)
        && (!wanted || row.textContent.toLowerCase().includes(wanted));
      row.hidden = !fits;
      left += fits ? 1 : 0;
    }
    count.textContent = `${left} of ${rows.length} claims`;
  };
  [paper, verdict].forEach((choice) => choice.addEventListener("change", filter));
  words.addEventListener("input", filter);
  document.querySelectorAll("button[data-show]").forEach((button) => button.addEventListener("click", () => {
    [paper.value, verdict.value] = [button.dataset.paper, button.dataset.show];
    filter();
    document.getElementById("claims").scrollIntoView();
  }));
  filter();
})();
