package nodebench

import (
	"slices"

	"gonum.org/v1/gonum/stat"

	"dynmo/src/record"
	"dynmo/src/trace"
)

// Rounds is the number of rounds of a measurement. Its result is the median over all rounds.
type Rounds struct {
	Count int
	Bar   *record.Bar // shows the number of rounds done; may be nil

	part, parts int // this is measurement `part` of `parts`, each with Count rounds; parts is 0 for a single one
}

// of returns the rounds of one of several measurements.
func (r Rounds) of(part, parts int) Rounds {
	r.part, r.parts = part, parts
	return r
}

// show shows how many rounds of this part are done.
func (r Rounds) show(done int) {
	r.Bar.Show(int64(r.part*r.Count+done), int64(max(1, r.parts)*r.Count))
}

// estimate is a median over rounds, with its quartiles. Quartiles are 0 for a single value.
type estimate struct{ median, low, high float64 }

// single returns the estimate of a single value.
func single(value float64) estimate { return estimate{median: value} }

// estimated returns the median and the quartiles of one value of each round.
func estimated(values []float64) estimate {
	if len(values) < 2 {
		return single(trace.Median(values))
	}
	median, low, high := Quartiles(values)
	return estimate{median, low, high}
}

// Quartiles returns the median of values and its quartiles; all three are 0 without values.
func Quartiles(values []float64) (median, low, high float64) {
	if len(values) == 0 {
		return 0, 0, 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return trace.Median(sorted), stat.Quantile(0.25, stat.LinInterp, sorted, nil), stat.Quantile(0.75, stat.LinInterp, sorted, nil)
}

// spans holds the seconds of each of several calls, round by round: spans[call][round].
type spans [][]float64

// medians returns the median seconds of each call.
func (s spans) medians() []float64 {
	medians := make([]float64, len(s))
	for i, seconds := range s {
		medians[i] = trace.Median(seconds)
	}
	return medians
}

// rate returns work per second of a call.
func (s spans) rate(call int, work float64) estimate {
	rates := make([]float64, len(s[call]))
	for round, seconds := range s[call] {
		rates[round] = work / seconds
	}
	return estimated(rates)
}

// ratio returns the seconds of call a over those of call b in the same round, times factor. A
// disturbance longer than a round slows both, and cancels.
func (s spans) ratio(a, b int, factor float64) estimate {
	ratios := make([]float64, len(s[a]))
	for round := range ratios {
		ratios[round] = factor * s[a][round] / s[b][round]
	}
	return estimated(ratios)
}

// sum returns the seconds of two calls in each round.
func (s spans) sum(a, b int) []float64 {
	seconds := make([]float64, len(s[a]))
	for round := range seconds {
		seconds[round] = s[a][round] + s[b][round]
	}
	return seconds
}

const (
	// share is the least part of the longest call's time that other calls get in a round, by
	// repeating them. A span much shorter than the system's time slices would miss a disturbance or
	// meet all of it.
	share = 0.25
	// mostRepeats bounds how often a call is made in a round.
	mostRepeats = 16
)

// rounds makes the calls one after the other, in rounds after one to warm up, and returns their
// seconds. A call much shorter than the longest is repeated in a round; its seconds are then the
// mean.
func (b *bench) rounds(rounds Rounds, calls ...func()) spans {
	seconds, repeats := make(spans, len(calls)), make([]int, len(calls))
	longest := 0.0
	for i, call := range calls {
		repeats[i] = 1
		seconds[i] = []float64{b.span(call, 1)}
		longest = max(longest, seconds[i][0])
	}
	for i := range calls {
		if first := seconds[i][0]; first > 0 {
			repeats[i] = int(max(1, min(mostRepeats, share*longest/first)))
		}
		seconds[i] = seconds[i][:0]
	}
	for round := range rounds.Count {
		for i, call := range calls {
			seconds[i] = append(seconds[i], b.span(call, repeats[i]))
		}
		rounds.show(round + 1)
	}
	return seconds
}

// span returns the mean seconds of a call that is made `times` times.
func (b *bench) span(call func(), times int) float64 {
	begin := b.stream.Record(nil)
	for range times {
		call()
	}
	end := b.stream.Record(nil)
	b.sync()
	return (end.Seconds() - begin.Seconds()) / float64(times)
}
