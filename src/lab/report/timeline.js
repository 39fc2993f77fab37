"use strict";
// Timelines: two lanes with one time scale, view.from to view.to in units.
const times = data.timelines;
const gutter = { left: 62, right: 54, top: 18, named: true }; // room beside the stages, and whether it fits their name

const view = { from: 0, to: 1 };
let lanes = [];

// unpack turns a stage's list of numbers into spans.
function unpack(list) {
	const spans = [];
	let at = 0;
	for (let i = 0; i < list.length; i += 5) {
		const start = at + list[i + 3], kind = times.kinds[list[i]], microbatch = list[i + 1], chunk = list[i + 2];
		at = start + list[i + 4];
		const name = microbatch < 0 ? kind : kind + microbatch + (chunk > 0 ? "." + chunk : "");
		spans.push({ kind, name, chunk, pipeline: microbatch >= 0, start, end: at });
	}
	return spans;
}

function load(index) {
	const stages = times.steps[index].stages.map(unpack);
	const all = stages.flat(), inner = all.filter(s => s.pipeline);
	const first = inner.reduce((t, s) => Math.min(t, s.start), Infinity);
	const last = inner.reduce((t, s) => Math.max(t, s.end), 0);
	return {
		stages, places: times.steps[index].places || [], makespan: inner.length ? last - first : 0,
		end: all.reduce((t, s) => Math.max(t, s.end), 1),
		busy: stages.map(list => list.reduce((t, s) => t + (s.pipeline ? s.end - s.start : 0), 0)),
	};
}

function time(units) {
	const ms = 1e3 * units * times.unit;
	return Number(ms.toPrecision(5)) + " ms";
}

function end() { return Math.max(...lanes.map(lane => lane.step.end)); }

// move shows from..to, as far as there is anything.
function move(from, to) {
	const most = end(), wide = Math.min(most, Math.max(to - from, 50));
	view.from = Math.min(Math.max(0, from), most - wide);
	view.to = view.from + wide;
	lanes.forEach(draw);
	document.getElementById("range").textContent = `shown: ${time(view.from)} to ${time(view.to)} of ${time(most)}`;
}

function scale(factor, at) {
	move(at - (at - view.from) * factor, at + (view.to - at) * factor);
}

function pan(share) {
	const by = share * (view.to - view.from);
	move(view.from + by, view.to + by);
}

function width(lane) { return lane.canvas.clientWidth - gutter.left - gutter.right; }

function unitAt(lane, clientX) {
	const x = clientX - lane.canvas.getBoundingClientRect().left - gutter.left;
	return view.from + x / width(lane) * (view.to - view.from);
}

function rowHeight(lane) { return Math.min(26, Math.max(9, 340 / lane.step.stages.length)); }

function draw(lane) {
	const named = lane.canvas.clientWidth >= 600;
	Object.assign(gutter, named ? { left: 62, right: 54, named } : { left: 26, right: 48, named });
	const { canvas, step } = lane, high = rowHeight(lane), ratio = window.devicePixelRatio || 1;
	const w = canvas.clientWidth, h = gutter.top + high * step.stages.length + 1;
	canvas.style.height = h + "px";
	canvas.width = w * ratio;
	canvas.height = h * ratio;
	const colour = colours();
	const c = canvas.getContext("2d");
	c.scale(ratio, ratio);
	c.font = "12px Arial, sans-serif";
	c.textBaseline = "middle";
	const scale = width(lane) / (view.to - view.from), x = unit => gutter.left + (unit - view.from) * scale;

	c.textAlign = "center";
	for (const unit of ticks(width(lane) / 90)) {
		c.fillStyle = colour("grid");
		c.fillRect(x(unit), gutter.top - 4, 1, h);
		c.fillStyle = colour("muted");
		c.fillText(time(unit), x(unit), 7);
	}
	const clip = gutter.left + width(lane), short = high < 12;
	step.stages.forEach((spans, stage) => {
		const y = gutter.top + stage * high;
		c.fillStyle = colour("muted");
		if (!short || stage % 2 === 0) {
			c.textAlign = "right";
			c.fillText(gutter.named ? "stage " + stage : stage, gutter.left - 8, y + high / 2);
			c.textAlign = "left";
			const busy = step.makespan ? (100 * step.busy[stage] / step.makespan).toFixed(0) + " %" : "";
			c.fillText(busy, clip + 8, y + high / 2);
		}
		c.save();
		c.beginPath();
		c.rect(gutter.left, y, width(lane), high);
		c.clip();
		c.fillStyle = colour("rest");
		c.fillRect(x(0), y, step.end * scale, high - 1);
		c.textAlign = "center";
		for (const s of spans) {
			if (s.end < view.from || s.start > view.to) continue;
			const left = x(s.start), wide = (s.end - s.start) * scale;
			c.globalAlpha = s.chunk > 0 ? 0.62 : 1;
			c.fillStyle = colour(s.kind);
			c.fillRect(left, y, Math.max(wide - (wide > 3 ? 0.8 : 0), 0.4), high - 1);
			c.globalAlpha = 1;
			if (!short && wide > 7 * s.name.length) {
				const from = Math.max(left, gutter.left), to = Math.min(left + wide, clip);
				c.fillStyle = s.chunk > 0 ? colour("ink") : "#000";
				c.fillText(s.name, (from + to) / 2, y + high / 2);
			}
		}
		c.restore();
	});
}

// ticks are round times in view, about count of them.
function ticks(count) {
	const seconds = (view.to - view.from) * times.unit / Math.max(1, count);
	const ten = 10 ** Math.floor(Math.log10(seconds));
	const by = [1, 2, 5, 10].find(f => f * ten >= seconds) * ten / times.unit;
	const list = [];
	for (let k = Math.ceil(view.from / by); k * by <= view.to; k++) list.push(k * by);
	return list;
}

// hover tells what lies under the pointer.
function hover(lane, e) {
	const tip = document.getElementById("tip"), box = lane.canvas.getBoundingClientRect();
	const unit = unitAt(lane, e.clientX), stage = Math.floor((e.clientY - box.top - gutter.top) / rowHeight(lane));
	const s = (lane.step.stages[stage] || []).find(s => s.start <= unit && unit < s.end);
	tip.hidden = !s;
	if (!s) return;
	const place = lane.step.places[stage] ? ", " + lane.step.places[stage] : "";
	tip.textContent = `${s.name} on stage ${stage}${place}\nstart ${time(s.start)}, took ${time(s.end - s.start)}`;
	tip.style.left = Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
	tip.style.top = e.clientY + 16 + "px";
}

const deeds = {
	in: () => scale(0.5, (view.from + view.to) / 2), out: () => scale(2, (view.from + view.to) / 2),
	left: () => pan(-0.25), right: () => pan(0.25), fit: () => move(0, end()),
};
const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", "0": "fit" };

function listenTo(lane) {
	const { canvas } = lane;
	let held = null;
	canvas.addEventListener("wheel", e => {
		if (!e.ctrlKey && document.activeElement !== canvas) return; // the page scrolls
		e.preventDefault();
		scale(e.deltaY > 0 ? 1.25 : 0.8, unitAt(lane, e.clientX));
	}, { passive: false });
	canvas.addEventListener("pointerdown", e => { held = e.clientX; canvas.setPointerCapture(e.pointerId); });
	canvas.addEventListener("pointerup", () => { held = null; });
	canvas.addEventListener("pointerleave", () => { document.getElementById("tip").hidden = true; });
	canvas.addEventListener("pointermove", e => {
		if (held === null) return hover(lane, e);
		pan((held - e.clientX) / width(lane));
		held = e.clientX;
	});
	canvas.addEventListener("keydown", e => {
		if (!(e.key in keys) || e.ctrlKey || e.metaKey) return;
		e.preventDefault();
		deeds[keys[e.key]]();
	});
	lane.select.addEventListener("change", () => { show(lane, Number(lane.select.value)); deeds.fit(); });
}

function show(lane, index) {
	lane.step = load(index);
	lane.select.value = index;
	lane.told.textContent = "makespan " + time(lane.step.makespan);
}

if (times) {
	lanes = [...document.querySelectorAll(".lane")].map((element, i) => {
		const lane = { canvas: element.querySelector("canvas"), select: element.querySelector("select"), told: element.querySelector("output") };
		times.steps.forEach((step, k) => lane.select.add(new Option(step.label, k)));
		show(lane, times.first[i]);
		listenTo(lane);
		return lane;
	});
	for (const swatch of document.querySelectorAll(".kind i[data-kind]")) swatch.style.background = `var(--${swatch.dataset.kind})`;
	for (const button of document.querySelectorAll("button[data-do]")) button.addEventListener("click", deeds[button.dataset.do]);
	const again = () => lanes.forEach(draw);
	window.addEventListener("resize", again);
	onColours(again);
	deeds.fit();
}
