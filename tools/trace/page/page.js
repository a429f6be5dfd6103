// SPDX-License-Identifier: Apache-2.0
// Draws what plot_page.cpp has put into #data: a chart for each device of each process, with its table of phases.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const TAGS = ["#3b7ddd", "#e8833a", "#35a36b", "#c94f6d", "#8a63d2", "#2aa5b8", "#b58b1b", "#d362b5", "#6f8f2f", "#5566cc",
                "#b0583f", "#3f8f8f"];
  const UNMANAGED = ["#7f8ea3", "#a08c74", "#7d9a86", "#9a86a8"];
  const PHASES = ["#3b7ddd", "#e8833a", "#35a36b", "#8a63d2", "#c94f6d", "#2aa5b8", "#b58b1b", "#d362b5"];
  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => "&#" + c.charCodeAt(0) + ";");
  const shortened = (text, most) =>
    text.length <= most ? text : text.slice(0, most - 1 - (most >> 1)) + "…" + text.slice(text.length - (most >> 1));

  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
  const unitOf = (bytes) => Math.min(UNITS.length - 1, bytes < 1 ? 0 : Math.floor(Math.log2(bytes) / 10));
  const amount = (bytes) => {
    const unit = unitOf(bytes);
    const number = bytes / 2 ** (10 * unit);
    return number.toFixed(unit === 0 || number >= 100 ? 0 : number >= 10 ? 1 : 2) + " " + UNITS[unit];
  };
  const duration = (seconds) =>
    seconds >= 10 ? seconds.toFixed(1) + " s" : seconds >= 0.1 ? seconds.toFixed(2) + " s" : (seconds * 1000).toFixed(2) + " ms";

  // A tag has one colour in all charts, and a phase too.
  const colours = new Map();
  const colourOf = (series) => {
    if (series.kind === "others") return dark.matches ? "#4b5563" : "#b9c0ca";
    if (series.kind === "unattributed") return dark.matches ? "#343c48" : "#dde2e8";
    const key = series.kind + " " + series.name;
    if (!colours.has(key)) {
      const palette = series.kind === "tag" ? TAGS : UNMANAGED;
      const before = [...colours.keys()].filter((each) => each.startsWith(series.kind + " ")).length;
      colours.set(key, palette[before % palette.length]);
    }
    return colours.get(key);
  };
  const phaseNames = [];
  const phaseColour = (name) => {
    if (!phaseNames.includes(name)) phaseNames.push(name);
    return PHASES[phaseNames.indexOf(name) % PHASES.length];
  };

  const GRID = { left: 64, right: 22 };

  // Each curve is the sum of itself and what lies below, and is painted down to 0 before the next lower one: the library's
  // own stacking takes several values at one time for one.
  const curves = (chart, unit, hidden) => {
    const sum = chart.times.map(() => 0);
    return chart.series.map((series, index) => {
      const shown = !hidden.has(series.name);
      return {
        name: series.name, id: series.kind + " " + series.name, type: "line", step: "end", symbol: "none", animation: false,
        xAxisIndex: 0, yAxisIndex: 0, z: 2, itemStyle: { color: colourOf(series) }, lineStyle: { width: 0 },
        areaStyle: { opacity: 1 }, emphasis: { disabled: true },
        data: chart.times.map((time, at) => [time, (sum[at] += shown ? chart.bytes[index][at] : 0) / unit]),
      };
    }).reverse();
  };

  // A strip above the curves with the names, and a light shade behind them.
  const phaseItems = (chart, axis, shade) => ({
    type: "custom", name: "phases", animation: false, silent: true, xAxisIndex: axis, yAxisIndex: axis, z: shade ? 0 : 3,
    clip: true, encode: { x: [0, 1] }, tooltip: { show: false },
    data: chart.phases.map((phase) => [phase.start, phase.end]),
    renderItem: (params, api) => {
      const phase = chart.phases[params.dataIndex];
      const area = params.coordSys;
      const left = Math.max(api.coord([phase.start, 0])[0], area.x);
      const right = Math.min(api.coord([phase.end, 0])[0], area.x + area.width);
      if (right - left < 0.5) return null;
      const shape = { x: left, y: area.y, width: right - left, height: area.height };
      const style = { fill: phaseColour(phase.name), opacity: shade ? 0.07 : 0.3 };
      if (shade) return { type: "rect", shape, style };
      const text = { text: phase.name, fill: getComputedStyle(document.body).color, fontSize: 11, width: right - left - 6,
                     overflow: "truncate", ellipsis: "…" };
      return { type: "rect", shape, style, textContent: right - left > 26 ? { style: text } : undefined,
               textConfig: { position: "inside" } };
    },
  });

  const phaseAt = (chart, time) => chart.phases.filter((phase) => phase.start <= time && time <= phase.end).pop();

  const tip = (chart) => (items) => {
    const curvesHere = items.filter((item) => item.seriesType === "line");
    if (curvesHere.length === 0) return "";
    const time = curvesHere[0].value[0];
    const phase = phaseAt(chart, time);
    const own = (item) => chart.bytes[chart.series.findIndex((series) => series.name === item.seriesName)][item.dataIndex];
    const rows = curvesHere.map((item) => ({ item, bytes: own(item) })).filter((row) => row.bytes > 0);
    const sum = rows.reduce((all, row) => all + row.bytes, 0);
    const head = `<b>${duration(time)}</b>` + (phase ? ` ${escaped(shortened(phase.name, 60))}` : "");
    const body = rows.map(({ item, bytes }) =>
      `<tr><td><i style="background:${item.color}"></i>${escaped(shortened(item.seriesName, 60))}</td><td>${amount(bytes)}</td></tr>`);
    return `<div class="tip">${head}<table>${body.join("")}<tr><td><b>used</b></td><td><b>${amount(sum)}</b></td></tr></table></div>`;
  };

  const options = (chart) => {
    const css = getComputedStyle(document.documentElement);
    const faint = css.getPropertyValue("--faint").trim();
    const line = css.getPropertyValue("--line").trim();
    const most = Math.max(...chart.used, 1);
    const power = unitOf(most);
    const unit = 2 ** (10 * power);
    const time = { type: "value", min: data.start, max: data.end, axisLine: { lineStyle: { color: line } }, splitLine: { show: false } };
    return {
      backgroundColor: "transparent", animation: false, useUTC: true,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      grid: [{ ...GRID, top: 66, bottom: 62 }, { ...GRID, top: 42, height: 18 }],
      legend: { type: "scroll", top: 0, left: GRID.left - 8, right: 8, itemWidth: 12, itemHeight: 12,
                textStyle: { color: css.getPropertyValue("--text").trim() }, pageIconColor: faint, pageTextStyle: { color: faint },
                data: chart.series.map((series) => series.name), formatter: (name) => shortened(name, 34), tooltip: { show: true } },
      tooltip: { trigger: "axis", axisPointer: { type: "line", animation: false }, confine: true, transitionDuration: 0,
                 backgroundColor: css.getPropertyValue("--panel").trim(), borderColor: line,
                 textStyle: { color: css.getPropertyValue("--text").trim() }, formatter: tip(chart) },
      toolbox: { right: 12, bottom: 4, itemSize: 13, iconStyle: { borderColor: faint },
                 feature: { dataZoom: { xAxisIndex: [0, 1], yAxisIndex: false, title: { zoom: "zoom into a part", back: "back" } },
                            saveAsImage: { name: "lowtide", title: "save as PNG", pixelRatio: 2,
                                           backgroundColor: css.getPropertyValue("--page").trim() } } },
      xAxis: [{ ...time, gridIndex: 0, axisLabel: { color: faint, formatter: (value) => +value.toPrecision(6) + " s", hideOverlap: true, showMaxLabel: false } },
              { ...time, gridIndex: 1, axisLabel: { show: false }, axisTick: { show: false }, axisLine: { show: false },
                axisPointer: { show: false } }],
      yAxis: [{ type: "value", gridIndex: 0, name: UNITS[power], nameTextStyle: { color: faint, align: "right" }, min: 0,
                axisLabel: { color: faint }, splitLine: { lineStyle: { color: line } } },
              { type: "value", gridIndex: 1, min: 0, max: 1, show: false }],
      // Nothing is filtered: what begins before the part that is seen reaches into it.
      dataZoom: [{ type: "inside", xAxisIndex: [0, 1], filterMode: "none" },
                 { type: "slider", xAxisIndex: [0, 1], filterMode: "none", height: 18, bottom: 10, left: GRID.left, right: 96, showDetail: false,
                   borderColor: line, textStyle: { color: faint } }],
      series: [phaseItems(chart, 0, true), phaseItems(chart, 1, false), ...curves(chart, unit, new Set())],
    };
  };

  const tableOf = (chart) => {
    const head = ["phase", "runs", "time per run", ...chart.columns, "used", "backups"];
    const cell = (bytes) => `<td data-bytes="${bytes}">${bytes ? amount(bytes) : "–"}</td>`;
    const rows = chart.table.map((row) =>
      `<tr data-phase="${escaped(row.phase)}"><td title="${escaped(row.phase)}">${escaped(shortened(row.phase, 64))}</td>` +
      `<td>${row.runs}</td><td>${duration(row.seconds)}</td>` +
      [...row.peaks, row.used, row.backups].map(cell).join("") + "</tr>");
    return `<details open><summary>peaks by phase</summary><div class="table"><table><tr>` +
      head.map((name) => `<th title="${escaped(name)}">${escaped(shortened(name, 36)).replace(/[_/.-]/g, "$&<wbr>")}</th>`).join("") + `</tr>${rows.join("")}</table></div></details>`;
  };

  document.getElementById("about").textContent = data.about + (data.notes.length ? ". " + data.notes.join(". ") : "");
  const drawn = data.charts.map((chart) => {
    const section = document.createElement("section");
    const total = chart.total ? ` <span class="faint">of ${amount(chart.total)}</span>` : "";
    section.innerHTML = `<h2>${escaped(chart.title)}${total}</h2><div class="faint command">${escaped(chart.command)}</div>` +
      `<div class="chart"></div>` + tableOf(chart);
    document.getElementById("charts").append(section);
    return { chart, section, place: section.querySelector(".chart") };
  });

  // What a test reads: the highest value that the library draws, and where its axis ends.
  const tell = (each) => {
    const unit = 2 ** (10 * unitOf(Math.max(...each.chart.used, 1)));
    const top = each.instance.getOption().series.find((one) => one.type === "line");
    each.section.dataset.peak = Math.round(Math.max(...(top ? top.data : []).map((point) => point[1]), 0) * unit);
    each.section.dataset.axis = each.instance.getModel().getComponent("yAxis", 0).axis.scale.getExtent()[1] * unit;
    each.section.dataset.points = each.chart.times.length;
  };

  // What is switched off in the legend counts no more: the rest comes down.
  const hide = (each, selected) => {
    const hidden = new Set(Object.keys(selected).filter((name) => !selected[name]));
    const unit = 2 ** (10 * unitOf(Math.max(...each.chart.used, 1)));
    each.instance.setOption({ series: curves(each.chart, unit, hidden) });
  };

  const draw = () => {
    for (const each of drawn) {
      if (each.instance) each.instance.dispose();
      each.instance = echarts.init(each.place, dark.matches ? "dark" : null, { renderer: "canvas" });
      each.instance.setOption(options(each.chart));
      each.instance.group = "time";
      each.instance.on("legendselectchanged", (event) => hide(each, event.selected));
      tell(each);
    }
    echarts.connect("time");
  };
  draw();
  dark.addEventListener("change", draw);
  addEventListener("resize", () => drawn.forEach((each) => each.instance.resize()));
  document.body.dataset.drawn = drawn.length;
})();
