package plan

import (
	"math"

	"dynmo/src/schedule"
)

// thetas are the settings of schedule.List that candidates tries, each with
// either preference between F and I: without a cap on microbatches in flight
// the first is the best nearly always, under a tight one any may be.
var thetas = []float64{0, 0.25, 0.5, 0.75}

// candidates returns the schedules of one chunk on each stage that Auto chooses
// from, always in the same order: gpipe, 1f1b, zb-h1 and zb-h2 where they keep
// to the cap on microbatches in flight, then lists, which always do. It takes
// no notice of Theta and ForwardFirst in o.
func candidates(o schedule.ListOptions) []schedule.Schedule {
	var out []schedule.Schedule
	for _, kind := range []schedule.Kind{schedule.KindGPipe, schedule.Kind1F1B, schedule.KindZBH1, schedule.KindZBH2} {
		s, err := schedule.New(kind, len(o.Costs), 1, o.Microbatches)
		if err != nil {
			panic("plan: " + err.Error()) // kinds of one chunk exist for all numbers
		}
		if fits(s, o.InFlight) {
			out = append(out, s)
		}
	}
	for _, o.Theta = range thetas {
		for _, o.ForwardFirst = range []bool{false, true} {
			out = append(out, schedule.List(o))
		}
	}
	return out
}

// fits reports whether a schedule keeps to a cap by stage; nil is none.
func fits(s schedule.Schedule, inFlight []int) bool {
	for stage, most := range inFlight {
		if s.Cap(stage) > most {
			return false
		}
	}
	return true
}

// Auto returns the candidate with the shortest makespan, the first of equals,
// and that makespan in seconds, as evaluate finds it. No single one is safe: a
// zero-bubble order may be worse than 1F1B once stages differ, and a list is
// greedy.
func Auto(o schedule.ListOptions, evaluate func(schedule.Schedule) float64) (schedule.Schedule, float64) {
	var best schedule.Schedule
	least := math.Inf(1)
	for _, s := range candidates(o) {
		if seconds := evaluate(s); best.Lists == nil || seconds < least {
			best, least = s, seconds
		}
	}
	return best, least
}
