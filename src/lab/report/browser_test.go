package report

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"dynmo/src/expect"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// probe uses the page as a reader does and sends its findings to the frame around it.
const probe = `<script>
const ink = () => [...document.querySelectorAll(".lane canvas")].map(c => {
	const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true });
	copy.drawImage(c, 0, 0);
	const pixels = copy.getImageData(0, 0, c.width, c.height).data;
	let hash = 0, filled = 0;
	for (let i = 0; i < pixels.length; i += 4) {
		hash = (hash * 31 + pixels[i] + 7 * pixels[i + 1] + 13 * pixels[i + 2]) | 0;
		filled += pixels[i] === 0x56 && pixels[i + 1] === 0xb4 && pixels[i + 2] === 0xe9; // --F
	}
	return { hash, share: 4 * filled / pixels.length };
});
const press = name => document.querySelector("button[data-do=" + name + "]").click();
const range = () => document.getElementById("range").textContent;
const told = { first: ink(), whole: range() };
press("in"); press("right");
told.zoomed = ink(); told.part = range();
press("fit");
told.again = ink();
const canvas = document.querySelector(".lane canvas");
canvas.focus();
canvas.dispatchEvent(new KeyboardEvent("keydown", { key: "+", bubbles: true }));
told.key = range();
press("fit");
const select = document.querySelector(".lane select");
told.options = [...select.options].map(o => o.text);
select.value = select.value === "0" ? select.options.length - 1 : 0; select.dispatchEvent(new Event("change"));
told.other = ink();
const box = canvas.getBoundingClientRect();
canvas.dispatchEvent(new PointerEvent("pointermove", { clientX: box.left + gutter.left + 4, clientY: box.top + 30 }));
told.tip = document.getElementById("tip").textContent;
const plot = document.querySelector(".uplot");
const legends = () => [...document.querySelectorAll(".u-legend .u-series:first-child .u-value")].map(e => e.textContent);
told.keys = {};
plot.focus();
told.focused = document.activeElement === plot;
const over = plot.querySelector(".u-over").getBoundingClientRect();
for (const key of ["Home", "ArrowRight", "End", "ArrowLeft"]) {
	plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
	told.keys[key] = document.getElementById("said").textContent;
}
told.shared = legends();
plot.querySelector(".u-over").dispatchEvent(new PointerEvent("pointerdown", { pointerType: "touch", clientX: over.left, clientY: over.top + 9 }));
told.touched = legends();
plot.querySelector(".u-over").dispatchEvent(new MouseEvent("mousemove", { clientX: over.right, clientY: over.top + 9 }));
told.pointed = legends();
told.blank = [...document.querySelectorAll(".uplot canvas")].filter(c => !c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(p => p)).length;
told.wide = document.documentElement.scrollWidth - innerWidth;
told.window = innerWidth;
told.small = [...document.querySelectorAll("body *")].filter(e => e.checkVisibility() &&
	[...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && parseFloat(getComputedStyle(e).fontSize) < 12).map(e => e.outerHTML);
const widths = () => plots.map(u => (u.scales.x.max - u.scales.x.min) / (data.to - data.from));
const after = (key, then) => { // uPlot draws after the script
	plot.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
	setTimeout(then, 20);
};
after("+", () => {
	told.near = widths();
	after("0", () => {
		told.far = widths();
		parent.postMessage(JSON.stringify(told), "*");
	});
});
</script>`

// frame shows page.html in a frame, which can be narrower than any window, and writes the page's
// messages.
const frame = `<body><iframe src="page.html" style="width: %spx; height: 900px"></iframe><script>
addEventListener("message", e => {
	const pre = document.createElement("pre");
	pre.id = "told";
	pre.textContent = e.data;
	document.body.append(pre);
});
</script></body>`

type canvas struct {
	Hash  int
	Share float64 // of the pixels that are forwards
}

// routing makes a run one with routed blocks, and layers that freeze.
func routing(r *Run) {
	r.Config.Dynamic.Kind = "freeze+mod"
	for i := range r.Metrics {
		m := &r.Metrics[i]
		m.BatchSize, m.Plasticity = 2, map[int]float64{1: 1e-4, 2: 1e-5}
		for block := 1; block < r.Config.Model.Blocks; block += 2 {
			m.Counts = append(m.Counts, record.LayerCounts{Layer: fmt.Sprintf("block.%d", block), Name: "routed", Values: []int64{128, int64(16 + i%5), 100, 0, 0}})
		}
	}
	r.Events = append(r.Events, record.Event{Step: r.last() / 2, Kind: record.Dynamic, Detail: map[string]any{"what": "freeze", "layers": 2.}})
}

// TestInABrowser opens the page from a file in headless Chromium: no error, a
// timeline that is painted, zooms, and shows another step when asked, and charts that say the numbers
// of the record to keys, fingers and the mouse.
func TestInABrowser(t *testing.T) {
	routed := func() Run {
		r := small.read(t)
		routing(&r)
		return r
	}
	for _, c := range []struct {
		name  string
		run   func() Run
		width string
		first string // recorded step
		steps int    // recorded
		tip   string // of the first instruction
	}{
		{"laptop", routed, "1280", "step 0", 6, "F0 on stage 0\nstart 0 ms, took "},
		{"phone", routed, "400", "step 0", 6, "F0 on stage 0\nstart 0 ms, took "},
		{"quiet", func() Run { // nothing changes, and losses are at the ends of floats
			r := small.read(t)
			r.Events = nil
			for i := range r.Metrics {
				r.Metrics[i].Loss = record.Float(1-2*(i%2)) * math.MaxFloat64
			}
			return r
		}, "800", "step 0", 6, "F0 on stage 0\nstart 0 ms, took "},
		{"chunks", func() Run { return sample{schedule.KindZBV, 4, 2, 8, 20, 20, 5, 8}.read(t) }, "800", "step 0", 6, "F0 on stage 0\nstart 0 ms, took "},
		{"packed", func() Run { return packedRun(t, true) }, "400", "step 1", 3, "F0 on stage 0, rank 0 on n0\nstart 0 ms, took "},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.run()
			text := strings.Replace(render(t, r), "</body>", probe+"</body>", 1)
			var told struct {
				First, Zoomed, Again, Other []canvas
				Whole, Part, Key, Tip       string
				Keys                        map[string]string
				Shared, Touched, Pointed    []string
				Focused                     bool
				Blank                       int
				Near, Far                   []float64 // shares of the steps that charts show
				Options                     []string
				Small                       []string
				Wide, Window                int
			}
			inBrowser(t, text, c.width, &told)
			for lane := range 2 {
				if told.First[lane].Share < 0.05 {
					t.Errorf("lane %d: %.1f %% of it are forwards, want at least 5", lane, 100*told.First[lane].Share)
				}
				if told.First[lane] == told.Zoomed[lane] || told.First[lane] != told.Again[lane] {
					t.Errorf("lane %d: zooming in and back paints %v, %v, %v; want another and the first again", lane, told.First[lane], told.Zoomed[lane], told.Again[lane])
				}
			}
			if told.Whole == told.Part || told.Whole == told.Key {
				t.Errorf("shown: %q, by the button %q, by the key %q; want parts", told.Whole, told.Part, told.Key)
			}
			if told.Other[0] == told.First[0] {
				t.Error("another step looks the same")
			}
			if len(told.Options) != c.steps || told.Options[0] != c.first {
				t.Errorf("steps to choose from: %q, want %d from %q on", told.Options, c.steps, c.first)
			}
			if !strings.HasPrefix(told.Tip, c.tip) {
				t.Errorf("the first instruction is told as %q", told.Tip)
			}
			steps := len(r.Metrics)
			for key, step := range map[string]int{"Home": 0, "ArrowRight": 1, "End": steps - 1, "ArrowLeft": steps - 2} {
				var got int
				var ms float64
				if _, err := fmt.Sscanf(told.Keys[key], "step %d: this run %g", &got, &ms); err != nil || got != step || math.Abs(ms/1e3/float64(r.Metrics[step].StepSeconds)-1) > 1e-4 {
					t.Errorf("%s says %q, want step %d and its %v s", key, told.Keys[key], step, r.Metrics[step].StepSeconds)
				}
			}
			if !told.Focused {
				t.Error("a chart cannot have the focus")
			}
			for where, shown := range map[int][]string{steps - 2: told.Shared, 0: told.Touched, steps - 1: told.Pointed} {
				if len(shown) < 4 || slices.ContainsFunc(shown[:4], func(s string) bool { return s != strconv.Itoa(where) }) {
					t.Errorf("charts show steps %q, want %d in all", shown, where)
				}
			}
			if len(told.Near) < 4 {
				t.Errorf("%d charts", len(told.Near))
			}
			for i, near := range told.Near {
				if math.Abs(near-0.5) > 0.01 || told.Far[i] != 1 {
					t.Errorf("chart %d: + shows %v of the steps, then 0 %v; want half and all", i, near, told.Far[i])
				}
			}
			if told.Blank > 0 {
				t.Errorf("%d charts are blank", told.Blank)
			}
			if told.Wide > 0 {
				t.Errorf("the page is %d pixels wider than the window", told.Wide)
			}
			if got := strconv.Itoa(told.Window); got != c.width {
				t.Errorf("a window of %s pixels, want %s", got, c.width)
			}
			for _, text := range told.Small {
				t.Errorf("smaller than 12 pixels: %s", text)
			}
		})
	}
}

// inBrowser opens a page in headless Chromium, in a frame of a width in pixels, and reads the message that
// the page's script sends to the frame. It skips the test without Chromium.
func inBrowser(t *testing.T, page, width string, told any) {
	t.Helper()
	chromium, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium in PATH")
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "frame.html")
	expect.OK(t, os.WriteFile(filepath.Join(dir, "page.html"), []byte(page), 0o666))
	expect.OK(t, os.WriteFile(file, fmt.Appendf(nil, frame, width), 0o666))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+filepath.Join(dir, "profile"), "--window-size=1400,1000", "--enable-logging=stderr",
		"--virtual-time-budget=2000", "--dump-dom", "file://"+file)
	var complaints strings.Builder
	command.Stderr = &complaints
	dom, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, complaints.String())
	}
	for line := range strings.Lines(complaints.String()) {
		if strings.Contains(line, "CONSOLE") {
			t.Errorf("console: %s", line)
		}
	}
	found := regexp.MustCompile(`(?s)<pre id="told">(.*?)</pre>`).FindSubmatch(dom)
	if found == nil {
		t.Fatal("the page's script did not come to its end")
	}
	expect.OK(t, json.Unmarshal([]byte(html.UnescapeString(string(found[1]))), told))
}
