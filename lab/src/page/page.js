// Draws the charts of the page from the drawings in it, with Observable Plot. Colours are variables of the style sheet.
"use strict";
(() => {
  const MARKS = { circle: d3.symbolCircle, triangle: d3.symbolTriangle, square: d3.symbolSquare, diamond2: d3.symbolDiamond2,
    cross: d3.symbolCross, star: d3.symbolStar, wye: d3.symbolWye, times: d3.symbolTimes };
  const NAMES = Object.keys(MARKS);
  const DASHES = [null, "7 3", "3 3", "9 3 2 3", "12 4", "5 2 1 2", "2 2", "10 2 2 2"];
  const drawings = JSON.parse(document.getElementById("drawings").textContent);
  const short = d3.format(".4~g");
  const number = value => Math.abs(value) >= 1000 ? d3.format(",.0f")(value) : short(value);

  for (const g of document.querySelectorAll(".swatch .mark")) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("d", d3.symbol(MARKS[g.dataset.mark], 55)());
    g.append(path);
  }

  // Options of the x axis: numbers, or one label in the middle of each category's room.
  function horizontal(drawing, width, left) {
    const [low, high] = drawing.x_range;
    const names = drawing.categories;
    const x = { domain: [low, high], label: null, type: drawing.x.scale === "Log" ? "log" : "linear", ticks: Math.max(2, width / 90) };
    if (!names.length) return { x, bottom: 44, axis: Plot.axisX({ label: drawing.x.unit ? `${drawing.x.label}, ${drawing.x.unit}` : drawing.x.label,
      labelArrow: "none", labelAnchor: "center", ticks: x.ticks, tickFormat: x.type === "log" ? number : undefined }) };
    const room = (width - left) / names.length;
    const longest = Math.max(...names.map(name => name.length)) * 6.4;
    const turned = longest > room - 6;
    // Slanted names need more room beside each other than upright ones.
    const upright = turned && room < 19;
    const cut = name => name.length > 22 && turned ? name.slice(0, 21) + "…" : name;
    const axis = Plot.axisX(names.map((_, n) => n + 0.5), { tickFormat: at => cut(names[Math.floor(at)]), tickSize: 0,
      tickRotate: upright ? -90 : turned ? -40 : 0, label: null, textAnchor: turned ? "end" : "middle" });
    return { x, bottom: turned ? 22 + Math.min(longest, 22 * 6.4) * (upright ? 0.95 : 0.62) : 30, axis };
  }

  function marks(drawing, width) {
    const floor = drawing.y.scale === "Log" ? drawing.y_range[0] : 0;
    const all = [];
    for (const series of drawing.series) {
      const { slot, original } = series.look;
      const colour = `var(--s${slot})`, hollow = original ? "none" : colour;
      const symbol = NAMES[slot], dash = original ? "1 4" : DASHES[slot];
      const points = series.points.map(([x, y, low, high]) => ({ x, y, low, high }));
      const where = x => drawing.categories.length ? drawing.categories[Math.floor(x)] : `${drawing.x.label} ${number(x)}`;
      const told = d => `${series.title}\n${where(d.x)}: ${number(d.y)} ${drawing.y.unit}` +
        (!drawing.stack && d.low !== undefined ? `\n${number(d.low)} to ${number(d.high)}` : "");
      const named = what => ({ ariaDescription: `${series.title}: ${what}` });
      const dots = (data, options) => Plot.dot(data, { x: "x", y: "y", symbol, fill: hollow, stroke: colour, ...options });
      const whiskers = () => Plot.ruleX(points.filter(d => d.low !== undefined),
        { x: "x", y1: "low", y2: "high", stroke: "currentColor", strokeWidth: 1.2, ...named("spread") });
      if (drawing.form === "lines") {
        all.push(Plot.line(points, { x: "x", y: "y", stroke: colour, strokeWidth: 1.8, strokeDasharray: dash, strokeLinecap: original ? "round" : "butt", ...named("line") }));
        all.push(whiskers());
        const shown = points.length > width / 10 ? points.filter((_, n) => n % Math.ceil(points.length / (width / 40)) === 0) : points;
        all.push(dots(shown, { r: 3.6, title: told, tip: true, ...named("points") }));
      } else if (drawing.form === "points") {
        const many = points.length > 400;
        all.push(dots(points, { r: many ? 1.6 : 2.8, fillOpacity: many ? 0.45 : 0.7, strokeOpacity: many ? 0.45 : 0.9,
          strokeWidth: many ? 0.6 : 1, title: told, tip: true, ...named("points") }));
      } else if (drawing.form === "areas") {
        all.push(Plot.areaY(points, { x: "x", y1: "low", y2: "high", fill: colour, fillOpacity: 0.75, stroke: "var(--ground)", strokeWidth: 0.6, ...named("area") }));
        const every = Math.max(1, Math.floor(points.length / (width / 110)));
        const some = points.filter((d, n) => n % every === Math.floor(every / 2) && d.y > (drawing.y_range[1] - drawing.y_range[0]) / 18);
        all.push(Plot.dot(some, { x: "x", y: d => (d.low + d.high) / 2, symbol, r: 3.4, fill: "var(--ground)", stroke: "var(--text)", strokeWidth: 0.8,
          title: told, tip: true, ...named("points") }));
      } else if (drawing.form === "bars") {
        const from = d => drawing.stack ? d.low : floor, to = d => drawing.stack ? d.high : d.y;
        all.push(Plot.rect(points, { x1: d => d.x - series.half, x2: d => d.x + series.half, y1: from, y2: to, fill: hollow, fillOpacity: 0.8,
          stroke: colour, strokeDasharray: original ? "2 3" : null, title: told, tip: true, ...named("bars") }));
        if (!drawing.stack) all.push(whiskers());
        const tall = drawing.stack ? points.filter(d => d.y > (drawing.y_range[1] - drawing.y_range[0]) / 18) : points;
        all.push(Plot.dot(tall, { x: "x", y: d => drawing.stack ? (d.low + d.high) / 2 : d.y, symbol, r: 3.2, fill: "var(--ground)", stroke: colour,
          strokeWidth: 1.4, ...named("points") }));
      } else {
        const boxes = series.boxes.map(([x, q]) => ({ x, ...q }));
        const half = series.half * 0.9;
        const told = d => `${series.title}\n${where(d.x)}: median ${number(d.median)} ${drawing.y.unit}\nquartiles ${number(d.q1)} to ${number(d.q3)}\n` +
          `whiskers ${number(d.low)} to ${number(d.high)}, n ${number(d.n)}`;
        all.push(Plot.ruleX(boxes.flatMap(q => [{ x: q.x, from: q.low, to: q.q1 }, { x: q.x, from: q.q3, to: q.high }]),
          { x: "x", y1: "from", y2: "to", stroke: colour, strokeDasharray: dash, ...named("whiskers") }));
        all.push(Plot.rect(boxes, { x1: d => d.x - half, x2: d => d.x + half, y1: "q1", y2: "q3", fill: original ? "var(--ground)" : colour,
          fillOpacity: original ? 1 : 0.45, stroke: colour, strokeDasharray: original ? "2 3" : null, title: told, tip: true, ...named("boxes") }));
        all.push(Plot.ruleY(boxes, { x1: d => d.x - half, x2: d => d.x + half, y: "median", stroke: "currentColor", strokeWidth: 2, ...named("medians") }));
        all.push(dots(boxes.map(q => ({ x: q.x, y: q.median })), { r: 3.2, fill: original ? "none" : "var(--ground)", strokeWidth: 1.4, ...named("points") }));
        const beyond = boxes.flatMap(q => q.outliers.map(y => ({ x: q.x, y })));
        all.push(Plot.dot(beyond, { x: "x", y: "y", r: 1.3, stroke: colour, strokeOpacity: 0.6, ...named("beyond the whiskers") }));
      }
    }
    return all;
  }

  function draw(element, drawing, wide) {
    const width = wide || Math.max(240, element.clientWidth || 640);
    const height = Math.round(Math.min(360, Math.max(220, width * 0.5)));
    const log = drawing.y.scale === "Log";
    const [low, high] = drawing.y_range;
    const marginLeft = 54;
    const across = horizontal(drawing, width, marginLeft);
    const lines = Math.max(3, height / 55);
    const tickFormat = value => Math.abs(value) >= 1e5 ? d3.format(".3~s")(value) : number(value);
    const svg = Plot.plot({
      width, height: height + across.bottom, marginLeft, marginRight: 10, marginTop: 10, marginBottom: across.bottom,
      style: { background: "transparent", color: "currentColor", fontSize: "12px", fontFamily: "inherit" },
      x: across.x,
      y: { domain: [low, high], type: log ? "log" : "linear", nice: !log, label: null },
      marks: [
        Plot.gridY({ ticks: lines, stroke: "var(--line)", strokeOpacity: 1 }),
        Plot.axisY({ ticks: lines, tickSize: 0, label: null, tickFormat }),
        across.axis,
        Plot.ruleY([log ? low : Math.max(low, Math.min(0, high))], { stroke: "var(--quiet)" }),
        ...marks(drawing, width),
      ],
    });
    element.replaceChildren(svg);
  }

  const all = wide => drawings.forEach((drawing, n) => draw(document.getElementById(`chart-${n}`), drawing, wide));
  all();
  // A chart is drawn for the width it has: a turned phone and a print have others.
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== width) {
      width = window.innerWidth;
      requestAnimationFrame(() => all());
    }
  });
  window.addEventListener("beforeprint", () => all(600));
  window.addEventListener("afterprint", () => all());
})();
