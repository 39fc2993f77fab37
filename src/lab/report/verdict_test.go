package report

import (
	"math"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/lab/verdict"
	"dynmo/src/record"
)

// judged is a run of two steps and what its cuts were worth.
type judged struct {
	balancer string
	loss     float64
	hash     string
	worth    *verdict.Result
}

// worthsOf returns the runs as one group, compared with the run static.
func worthsOf(list []judged, static int) Worths {
	w := Worths{groups: []group{{static: static}}}
	for i, j := range list {
		c := config.Default()
		c.Balance.Kind = j.balancer
		metrics := []record.Metrics{{Loss: 5}, {Step: 1, Loss: record.Float(j.loss)}}
		w.runs = append(w.runs, Run{Dir: string(rune('a' + i)), Config: c, Metrics: metrics, End: &verdict.Summary{Hash: j.hash, Moves: &verdict.Moves{}}})
		w.of = append(w.of, j.worth)
		w.groups[0].runs = append(w.groups[0].runs, i)
	}
	return w
}

func TestVerdicts(t *testing.T) {
	faster := func(speedup float64) *verdict.Result {
		return &verdict.Result{Moved: true, Speedup: speedup, Low: speedup - 0.01, High: speedup + 0.01, Draws: 40, Ceiling: 1.8}
	}
	static := judged{"uniform", 4, "ab", &verdict.Result{Speedup: 1, Low: 1, High: 1, Draws: 40, Ceiling: 1.8}}
	doubted := faster(0.06)
	doubted.Doubt = "4 ranks on 2 cores"
	nan := judged{"uniform", math.NaN(), "ab", static.worth}
	const same = "; losses are the same to the last digit."
	param := static
	param.balancer = "param"
	for _, c := range []struct {
		runs   []judged
		static int
		want   string
	}{
		{[]judged{static, static, {"partition", 4, "ab", faster(1.70)}, {"diffusion", 4, "ab", faster(1.65)}, {"partition", 4, "ab", faster(1.72)}}, 0,
			"moving layers made these runs 1.71x (partition) and 1.65x (diffusion) faster than even cuts that never move (1.64x to 1.73x; ceiling 1.80x)" + same},
		{[]judged{static, {"partition", 4, "ab", faster(0.9)}}, 0,
			"moving layers made these runs 0.90x (partition) as fast as even cuts that never move (0.89x to 0.91x; ceiling 1.80x)" + same},
		{[]judged{static, {"diffusion", 4, "ab", faster(1.005)}}, 0,
			"moving layers made these runs neither faster nor slower than even cuts that never move, within noise (0.99x to 1.01x; ceiling 1.80x)" + same},
		{[]judged{static, {"partition", 4.5, "ab", faster(1.5)}}, 0,
			"moving layers made these runs 1.50x (partition) faster than even cuts that never move (1.49x to 1.51x; ceiling 1.80x); losses of a and b differ from step 1 on."},
		{[]judged{static, {"partition", 4, "cd", faster(1.5)}}, 0,
			"moving layers made these runs 1.50x (partition) faster than even cuts that never move (1.49x to 1.51x; ceiling 1.80x); weights of a and b differ."},
		{[]judged{nan, {"partition", math.NaN(), "ab", faster(1.5)}}, 0,
			"moving layers made these runs 1.50x (partition) faster than even cuts that never move (1.49x to 1.51x; ceiling 1.80x)" + same},
		{[]judged{static, {"partition", 4, "ab", doubted}}, 0, "the speedup is not meaningful: 4 ranks on 2 cores" + same},
		{[]judged{static, static}, 0, ""},
		{[]judged{{"partition", 4, "ab", faster(1.5)}}, -1, "1.50x faster than static placement (1.49 to 1.51; ceiling 1.80)."},
		{[]judged{static}, -1, "layers never moved; the best cuts would be 1.80x faster."},
		{[]judged{{"partition", 4, "ab", faster(1.5)}, {"diffusion", 4, "ab", faster(1.4)}}, -1,
			"moving layers made these runs 1.50x (partition) and 1.40x (diffusion) faster than their first cuts (1.39x to 1.51x; ceiling 1.80x)" + same},
		{[]judged{{"partition", 4, "ab", faster(1.5)}, static, param}, 2,
			"moving layers made these runs 1.50x (partition) faster than the best cuts that never move, param (1.49x to 1.51x; ceiling 1.80x)" + same},
		{[]judged{param, {"partition", 4, "ab", faster(1.5)}}, 0,
			"moving layers made these runs 1.50x (partition) faster than param cuts that never move (1.49x to 1.51x; ceiling 1.80x)" + same},
	} {
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		if got := worthsOf(c.runs, c.static).Verdicts(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	two := worthsOf([]judged{static, {"partition", 4, "ab", faster(1.5)}, static, {"partition", 4, "ab", faster(1.2)}}, 0)
	two.groups = []group{{[]int{0, 1}, 0}, {[]int{2, 3}, 2}}
	two.runs[2].Config.Run.Name, two.runs[2].Config.Parallel.Stages = "other", 2
	if got := two.Verdicts(); len(got) != 2 || !strings.HasPrefix(got[0], "run, 1 x 1: moving") || !strings.HasPrefix(got[1], "other, 2 x 1: moving") {
		t.Errorf("of two groups: %q", got)
	}
}
