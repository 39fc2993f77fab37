package report

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynmo/src/expect"
	"dynmo/src/record"
	"dynmo/src/schedule"
)

// compared renders a page of several runs.
func compared(t *testing.T, runs ...Run) string {
	t.Helper()
	var page strings.Builder
	expect.OK(t, Compare(&page, runs))
	return page.String()
}

// TestCompare: a page of runs of different lengths has each number of each run once, at its step, and says
// what differs.
func TestCompare(t *testing.T) {
	long := small.read(t)
	short := sample{schedule.KindGPipe, 4, 1, 16, 14, 20, 10, 14}.read(t)
	short.Config.Optimizer.LR = 0.25
	page := compared(t, long, short)
	for _, want := range []string{
		"<h1>2 runs compared</h1>",
		"<th>optimizer.lr</th><td>0.001</td><td>0.25</td>",
		"<th>schedule.kind</th><td>&#34;1f1b&#34;</td><td>&#34;gpipe&#34;</td>",
		"Layout: stages x replicas. Loss: of the last step.",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, "different clocks") || strings.Contains(page, "<b>&amp;amp;</b>") || strings.Contains(page, "Headroom:") {
		t.Error("the page warns of clocks, has markup of a run's name, or a note on a column that is not there")
	}
	var data struct {
		Charts   []chart
		From, To int
	}
	found := regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`).FindStringSubmatch(page)
	expect.OK(t, json.Unmarshal([]byte(found[1]), &data))
	var titles []string
	for _, c := range data.Charts {
		titles = append(titles, c.Title)
		if len(c.Curves) != 2 || len(c.Steps) != 40 || len(c.Curves[1].Y) != 40 {
			t.Fatalf("%s: %d curves over %d steps", c.Title, len(c.Curves), len(c.Steps))
		}
		if !finite(c.Curves[0].Y[39]) || finite(c.Curves[1].Y[20]) || !finite(c.Curves[1].Y[19]) {
			t.Errorf("%s: curves end at other steps than their runs", c.Title)
		}
	}
	if want := []string{"step time", "loss", "throughput", "bubble ratio", "imbalance", "sparsity"}; !slices.Equal(titles, want) || data.From != 0 || data.To != 39 {
		t.Errorf("charts %q over %d to %d, want %q over 0 to 39", titles, data.From, data.To, want)
	}
	for i, r := range []Run{long, short} {
		for k, m := range r.Metrics {
			if got := data.Charts[0].Curves[i].Y[k]; got != 1e3*m.StepSeconds {
				t.Errorf("run %d, step %d: %v ms, want %v", i, k, got, 1e3*m.StepSeconds)
			}
		}
	}
}

// TestCompareWarns of clocks, and names runs by what tells them apart.
func TestCompareWarns(t *testing.T) {
	a, b := small.read(t), small.read(t)
	for i := range b.Metrics {
		b.Metrics[i].Clock = "wall"
	}
	a.Dir, b.Dir = "x/one", "x/two"
	if page := compared(t, a, b); !strings.Contains(page, "Times are of different clocks and should not be compared: one virtual, two wall.") {
		t.Error("the page does not warn of two clocks")
	}
	a.Dir, b.Dir = "x/run", "y/run"
	if page := compared(t, a, b); !strings.Contains(page, "x/run virtual, y/run wall") {
		t.Error("runs in directories of one name are not told apart")
	}
	if page := compared(t, a, withDir(a, "z")); !strings.Contains(page, "All settings are the same") {
		t.Error("equal runs have differences")
	}
	for _, c := range []struct {
		runs []Run
		want string
	}{
		{[]Run{a, b, withDir(a, "x/./run")}, "x/./run: given twice"},
		{slices.Repeat([]Run{a}, 9), "9 runs: a page shows at most 8"},
	} {
		if err := Compare(&strings.Builder{}, c.runs); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want …%s…", err, c.want)
		}
	}
}

func withDir(r Run, dir string) Run { r.Dir = dir; return r }

// TestComparedWorth: runs of the same work are judged on one set of costs, as in the table, and the page
// has the verdict.
func TestComparedWorth(t *testing.T) {
	static, moving := recorded(t, "uniform", 2), recorded(t, "partition", 1)
	layers := static.Config.Layers()
	runs := []Run{costly(t, static, layers/2, layers/2), costly(t, moving, layers/2, layers-1)}
	worths, err := Weigh(runs)
	expect.OK(t, err)
	page := compared(t, runs...)
	for _, want := range []string{sentenceCase(runs[1].headline(*worths.of[1])), sentenceCase(strings.TrimSuffix(worths.Verdicts()[0], "."))} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestComparedInABrowser: at the width of a telephone the page is no wider than the window, its charts are
// drawn and answer to keys, and a table that is wider than the window scrolls in itself.
func TestComparedInABrowser(t *testing.T) {
	script := `<script>
const plot = document.querySelector(".uplot");
plot.focus();
plot.dispatchEvent(new KeyboardEvent("keydown", { key: "End", bubbles: true }));
const table = document.querySelector(".scroll");
table.scrollLeft = 1e6;
parent.postMessage(JSON.stringify({
	said: document.getElementById("said").textContent,
	blank: [...document.querySelectorAll(".uplot canvas")].filter(c => !c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(p => p)).length,
	charts: plots.length, wide: document.documentElement.scrollWidth - innerWidth, scrolled: table.scrollLeft,
}), "*");
</script>`
	a, b := small.read(t), small.read(t)
	a.Dir, b.Dir = "x/one", "x/two"
	for i := range b.Metrics {
		b.Metrics[i].StepSeconds *= 2
	}
	var told struct {
		Said                          string
		Blank, Charts, Wide, Scrolled int
	}
	inBrowser(t, strings.Replace(compared(t, a, b), "</body>", script+"</body>", 1), "400", &told)
	last := a.Metrics[39].StepSeconds
	if want := "step 39: one " + number(1e3*last) + ", two " + number(2e3*last) + " ms"; told.Said != want {
		t.Errorf("the End key says %q, want %q", told.Said, want)
	}
	if told.Blank > 0 || told.Charts != 6 || told.Wide > 0 || told.Scrolled == 0 {
		t.Errorf("%+v, want six charts that are drawn, no wider page, and a table that scrolls", told)
	}
}

// number formats y as the page's script does.
func number(y record.Float) string {
	short, _ := strconv.ParseFloat(strconv.FormatFloat(float64(y), 'g', 5, 64), 64)
	return strconv.FormatFloat(short, 'f', -1, 64)
}
