"use strict";
const data = JSON.parse(document.getElementById("data").textContent);

// colours returns the page's colours by name.
function colours() {
	const style = getComputedStyle(document.documentElement), known = {};
	return name => known[name] ??= style.getPropertyValue("--" + name).trim();
}

// onColours calls paint when the colours of the page change: with the reader's theme, and for
// paper, which is white whatever the screen.
function onColours(paint) {
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
	window.addEventListener("beforeprint", paint);
	window.addEventListener("afterprint", paint);
}
window.addEventListener("beforeprint", () => document.documentElement.classList.add("print"));
window.addEventListener("afterprint", () => document.documentElement.classList.remove("print"));

const changes = {
	dynamic: { text: "the model changed", dash: [] }, migrate: { text: "layers moved", dash: [5, 3] },
	balance: { text: "a decision, no layer moved", dash: [1, 3] }, repack: { text: "packed onto fewer ranks", dash: [] },
	release: { text: "ranks ended or nodes went back", dash: [5, 3] },
};
const dashes = { static: [7, 4], best: [2, 3] };
const wholeSteps = [...Array(16).keys()].flatMap(k => [1, 2, 5].map(f => f * 10 ** k));
const decades = { // of a logarithmic axis: powers of ten, about six
	splits: (u, k, low, high) => {
		const first = Math.round(Math.log10(low)), count = Math.round(Math.log10(high)) - first;
		return [...Array(count + 1).keys()].filter(i => i % Math.ceil(count / 6) === 0).map(i => 10 ** (first + i));
	},
	values: (u, list) => list.map(y => y.toExponential(0)),
	filter: (u, list) => list,
};
const number = y => y == null ? "–" : String(Number(y.toPrecision(5)));

// drawMarks draws the changes as upright lines below the curves. Lines of one kind are short where
// they are so many that they would hide the curves.
function drawMarks(u) {
	const { ctx: c, bbox: { left, top, width, height } } = u, colour = colours(), ratio = devicePixelRatio;
	c.save();
	c.beginPath();
	c.rect(left, top, width, height);
	c.clip();
	for (const { kind, step } of data.marks) {
		const x = u.valToPos(step, "x", true), many = data.marks.filter(m => m.kind === kind).length > 40;
		c.beginPath();
		c.strokeStyle = colour(kind);
		c.lineWidth = ratio;
		c.setLineDash(changes[kind].dash.map(d => d * ratio));
		c.moveTo(x, top);
		c.lineTo(x, top + (many ? 0.1 : 1) * height);
		c.stroke();
	}
	c.restore();
}

// yRange returns the ends of the axis for numbers from low to high.
function yRange(chart, low, high) {
	if (low === null) return [0, 1];
	if (chart.log) return uPlot.rangeLog(low, high, 10, true);
	if (chart.top) high = Math.min(high, chart.top);
	if (chart.zero) [low, high] = [Math.min(low, 0), Math.max(high, 0)];
	const room = 0.05 * (high - low) || Math.max(1, 1e-9 * Math.abs(low));
	return [chart.zero && low === 0 ? 0 : low - room, high + room];
}

// build draws a chart into its place on the page.
function build(chart, place) {
	const colour = colours(), font = "12px system-ui, Arial, sans-serif";
	const axis = { stroke: colour("muted"), font, grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1, size: 4 } };
	const curves = chart.curves.map(curve => ({
		label: curve.name, stroke: colour(curve.style), width: curve.style in dashes ? 2 : 1.5, dash: dashes[curve.style], spanGaps: curve.sparse,
		paths: curve.held ? uPlot.paths.stepped({ align: 1 }) : undefined,
		points: curve.held && chart.steps.length > 1 ? { show: false } : curve.sparse ? { show: true, size: 4 } : { size: 4 },
		value: (u, y) => number(y),
	}));
	const u = new uPlot({
		width: place.clientWidth, height: Number(place.dataset.height),
		scales: {
			x: { time: false, range: (u, low, high) => low === chart.steps[0] && high === chart.steps.at(-1) ? [data.from, data.to] : [low, high] },
			y: { distr: chart.log ? 3 : 1, range: (u, low, high) => yRange(chart, low, high) },
		},
		series: [{ label: "step", value: (u, step) => step ?? "–" }, ...curves],
		axes: [{ ...axis, size: 28, gap: 2, incrs: wholeSteps }, { ...axis, size: 62, ...(chart.log ? decades : {}) }],
		cursor: {
			sync: { key: "steps" }, y: false,
			dataIdx: (u, k, i) => { // of a curve with gaps that are bridged, the last number so far
				while (chart.curves[k - 1]?.sparse && i >= 0 && u.data[k][i] === null) i--;
				return i < 0 ? null : i;
			},
		},
		legend: { markers: { dash: (u, k) => ({ static: "dashed", best: "dotted" })[chart.curves[k - 1].style] ?? "solid" } },
		hooks: { drawAxes: [drawMarks] },
	}, [chart.steps, ...chart.curves.map(curve => curve.y)], place);
	listen(chart, u);
	return u;
}

// tell describes the step under the cursor: its numbers, and the changes since the point before it.
function tell(chart, u) {
	const i = u.cursor.idx, step = chart.steps[i];
	const values = chart.curves.map((curve, k) => `${curve.name} ${number(u.data[k + 1][u.cursor.idxs[k + 1]])}`);
	const before = data.marks.filter(m => m.step <= step && m.step > (chart.steps[i - 1] ?? -Infinity)).map(m => changes[m.kind].text);
	return [`step ${step}: ${values.join(", ")} ${chart.unit}`.trim(), ...new Set(before)].join("; ");
}

// zoom shows, in all charts, the shown steps times a factor, 0 for all steps.
function zoom(u, factor) {
	const { min, max } = u.scales.x, at = u.cursor.idx === null ? (min + max) / 2 : u.data[0][u.cursor.idx];
	const low = factor ? Math.max(data.from, at - (at - min) * factor) : data.from;
	const high = factor ? Math.min(data.to, at + (max - at) * factor) : data.to;
	for (const other of uPlot.sync("steps").plots) other.setScale("x", { min: low, max: high });
}

// moveTo sets the cursor of a chart, and thereby that of all charts, at x pixels.
function moveTo(u, x) {
	u.setCursor({ left: Math.max(x, 0), top: 0 }, true, true);
}

// listen lets fingers and keys move the cursor of a chart.
function listen(chart, u) {
	u.root.tabIndex = 0;
	u.root.setAttribute("role", "application");
	u.root.setAttribute("aria-label", `${chart.title} over steps`);
	u.root.setAttribute("aria-describedby", "keys");
	const touch = e => {
		if (e.pointerType === "mouse") return;
		const box = u.over.getBoundingClientRect();
		moveTo(u, Math.min(e.clientX - box.left, box.width));
	};
	u.over.addEventListener("pointerdown", touch);
	u.over.addEventListener("pointermove", touch);
	u.root.addEventListener("keydown", e => {
		if (e.ctrlKey || e.metaKey || e.altKey) return;
		const [first, last] = u.series[0].idxs, i = u.cursor.idx;
		const factor = { "+": 0.5, "=": 0.5, "-": 2, "0": 0 }[e.key];
		const next = { ArrowLeft: (i ?? last + 1) - 1, ArrowRight: (i ?? first - 1) + 1, Home: first, End: last }[e.key];
		if (factor === undefined && next === undefined) return;
		e.preventDefault();
		if (factor !== undefined) return zoom(u, factor);
		moveTo(u, u.valToPos(chart.steps[Math.min(Math.max(next, first), last)], "x"));
		document.getElementById("said").textContent = tell(chart, u);
	});
}

const places = [...document.querySelectorAll(".area")];
let plots = [];
function buildAll() {
	for (const u of plots) u.destroy();
	plots = places.map(place => build(data.charts[place.dataset.chart], place));
}
onColours(buildAll);
window.addEventListener("resize", () => plots.forEach((u, i) => u.setSize({ width: places[i].clientWidth, height: u.height })));
buildAll();
