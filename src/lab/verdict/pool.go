package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// Run is a run to compare: its recorded costs, and the problem of the settings that it ran with.
type Run struct {
	Problem *search.Problem
	Series  record.Series
}

// Compare returns the Results of several runs that did equal work, all executed or all simulated.
// Executed runs get the same costs of layers: the samples of all runs between two changes of the model
// are put together. Otherwise a run on a disturbed machine would look slower. A simulated run measured
// nothing and keeps its own costs. The static layout of all Results is that of the fastest run
// that never moved layers, by simulated seconds without balancing. static is the index of this run. If every
// run moved layers, static is -1, and each Result has the static layout that Measure takes. The error is
// ErrNotRun, or says how the work of two runs differs.
func Compare(runs []Run) (list []Result, static int, err error) {
	lists := make([][]segment, len(runs))
	for i, r := range runs {
		if lists[i] = segments(r.Series); len(lists[i]) == 0 {
			return nil, -1, fmt.Errorf("run %d: %w", i, ErrNotRun)
		}
	}
	isSimulated := lists[0][0].run.Simulated
	if isSimulated {
		for i := range lists {
			agreeOnSpeeds(lists[i : i+1])
		}
	} else {
		agreeOnSpeeds(lists)
	}
	if err := shareCosts(lists, !isSimulated); err != nil {
		return nil, -1, err
	}
	static = fastestStatic(lists)
	rows := make([]compared, len(runs))
	for i, list := range lists {
		rows[i] = compared{runs[i].Problem, list, staticSegments(list)}
		if static >= 0 {
			rows[i].static = lists[static]
			for k := range list {
				list[k].stay = lists[static][0].layout
			}
			if isSimulated {
				rows[i].static = staticSegments(list)
			}
		}
	}
	return evaluate(rows), static, nil
}

// fastestStatic returns the index of the fastest run whose layers never moved; -1: there is none.
func fastestStatic(lists [][]segment) int {
	t := trial{costs: measuredCosts}
	fastest, least := -1, math.Inf(1)
	for i, list := range lists {
		if firstMove(list) >= 0 {
			continue
		}
		if seconds := t.total(list); seconds < least {
			fastest, least = i, seconds
		}
	}
	return fastest
}

// firstMove returns the first segment in another layout than the first one; -1: there is none.
func firstMove(list []segment) int {
	return slices.IndexFunc(list, func(s segment) bool { return !s.layout.Equal(list[0].layout) })
}

// shareCosts gives the segments of a run the same costs where the model is the same. With `pooled` the costs
// are those of all runs. The error says how the work of two runs differs.
func shareCosts(lists [][]segment, pooled bool) error {
	parts := make([][]part, len(lists))
	for i, list := range lists {
		parts[i] = splitByModel(list)
		if len(parts[i]) != len(parts[0]) {
			return fmt.Errorf("run %d: the model changes %d times, in run 0 %d times", i, len(parts[i])-1, len(parts[0])-1)
		}
	}
	for k, first := range parts[0] {
		var all []segment
		for i := range parts {
			if other := parts[i][k]; other.work != first.work {
				return fmt.Errorf("run %d: %v; run 0: %v", i, other.work, first.work)
			}
			all = append(all, parts[i][k].segments...)
		}
		costs, rest := poolCosts(all)
		for i := range parts {
			if !pooled {
				costs, rest = poolCosts(parts[i][k].segments)
			}
			for j := range parts[i][k].segments {
				parts[i][k].segments[j].costs, parts[i][k].segments[j].rest = costs, rest
			}
		}
	}
	return nil
}

// work describes steps with one model.
type work struct {
	model, clock, change string
	step, steps, layers  int
}

func (w work) String() string {
	return fmt.Sprintf("%d steps from %d of %d layers (%s) after %q on clock %s", w.steps, w.step, w.layers, w.model, w.change, w.clock)
}

// DescribeWork returns a text with a line for each model of a run: a kind of dynamism may change the
// model several times. A line has the numbers of steps and layers, the model's settings, what changed
// the model, and the clock. Compare accepts runs whose texts are equal.
func DescribeWork(series record.Series) string {
	var b strings.Builder
	for _, p := range splitByModel(segments(series)) {
		fmt.Fprintln(&b, p.work)
	}
	return b.String()
}

// part is the segments of a run with one model.
type part struct {
	work
	segments []segment
}

// splitByModel divides segments where the model changes.
func splitByModel(list []segment) []part {
	var parts []part
	for i, s := range list {
		c := s.costs
		if i == 0 || c.Change != "" {
			parts = append(parts, part{work: work{c.Model, c.Clock, c.Change, c.Step, 0, len(c.Layers)}, segments: list[i:i]})
		}
		last := &parts[len(parts)-1]
		last.steps += s.steps
		last.segments = list[i-len(last.segments) : i+1]
	}
	return parts
}

// mostPooled is the most steps whose samples a pool keeps.
const mostPooled = 64

// poolCosts returns the costs of layers by the samples of all segments, and the seconds of a
// step outside its makespan.
func poolCosts(all []segment) (*sampled, float64) {
	s := &sampled{Phase: all[0].costs.Phase}
	var rests, dispatch []float64
	known := false
	for _, from := range all {
		rests, dispatch = append(rests, from.rest), append(dispatch, from.costs.Dispatch)
		known = known || from.costs.samples != nil
		s.samples = append(s.samples, from.costs.inSeconds()...)
	}
	if n := len(s.samples); n > mostPooled {
		for i := range mostPooled {
			s.samples[i] = s.samples[i*n/mostPooled]
		}
		s.samples = s.samples[:mostPooled]
	}
	s.Dispatch = trace.Median(dispatch)
	s.Layers = slices.Clone(s.Layers)
	for l, layer := range s.Layers {
		s.centre = append(s.centre, location(s.samples, l))
		s.Layers[l] = layer.WithSeconds(s.centre[l])
	}
	if !known {
		s.samples = nil
	}
	return s, cost.Lower(rests)
}

// inSeconds returns the samples in seconds. Costs without samples count as one step with one
// microbatch.
func (s *sampled) inSeconds() [][][]cost.Stage {
	samples := s.samples
	if samples == nil {
		samples = [][][]cost.Stage{slices.Repeat([][]cost.Stage{{{Forward: 1, Input: 1, Weight: 1}}}, len(s.Layers))}
	}
	out := make([][][]cost.Stage, len(samples))
	for i, rows := range samples {
		out[i] = make([][]cost.Stage, len(rows))
		for l, row := range rows {
			for _, x := range row {
				out[i][l] = append(out[i][l], s.Layers[l].Stage().Times(x))
			}
		}
	}
	return out
}
