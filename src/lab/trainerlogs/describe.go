package trainerlogs

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"dynmo/src/cost"
)

// doubtful is the share of the seconds of a part that a fit may leave unexplained without a note. A block
// that the layout has on another stage is more than this share of a stage with up to 16 blocks. Equal GPUs
// differ by less.
const doubtful = 0.05

// describe returns what a fit says of a kind. j is its place among the unknown kinds.
func describe(parts []part, list [weight]passFit, j, kind, layers int, seconds cost.Stage) Kind {
	k := Kind{Name: names[kind], Layers: layers, Seconds: seconds}
	variance := 0.0
	for _, f := range list {
		if f.variance == nil {
			variance = math.NaN()
		} else {
			variance += f.variance[j]
		}
	}
	if k.Deviation = math.Sqrt(variance); seconds.Seconds() > 0 {
		k.Deviation /= seconds.Seconds()
	}
	n := 0
	for i, p := range parts {
		if p.layers[kind] > 0 {
			k.Residual += math.Pow(unexplained(list, i), 2)
			k.Samples += len(p.samples[forward])
			n++
		}
	}
	k.Residual = math.Sqrt(k.Residual / float64(n))
	return k
}

// unexplained returns the share of the seconds of part i that the layers do not explain.
func unexplained(list [weight]passFit, i int) float64 {
	rest, all := 0.0, 0.0
	for _, f := range list {
		rest += f.middle[i] - f.fitted[i]
		all += f.middle[i]
	}
	return rest / all
}

// deviations returns the standard error of every layer; nil if that of a kind is not known.
func deviations(list []Kind) []float64 {
	var all []float64
	for _, k := range list {
		if math.IsNaN(k.Deviation) {
			return nil
		}
		for range k.Layers {
			all = append(all, min(k.Deviation, cost.MostFactor))
		}
	}
	return all
}

// doubts returns a note that names the parts that a fit explains badly, at most three of them; "" if there
// are none. layout is the one that was fitted.
func doubts(parts []part, list [weight]passFit, layout string) string {
	var bad []int
	for i := range parts {
		if math.Abs(unexplained(list, i)) > doubtful {
			bad = append(bad, i)
		}
	}
	if bad == nil {
		return ""
	}
	slices.SortStableFunc(bad, func(a, b int) int {
		return cmp.Compare(math.Abs(unexplained(list, b)), math.Abs(unexplained(list, a)))
	})
	var worst []string
	for _, i := range bad[:min(3, len(bad))] {
		worst = append(worst, fmt.Sprintf("%s took %+.0f %%", parts[i].name, 100*unexplained(list, i)))
	}
	more := ""
	if n := len(bad) - len(worst); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("--layout %.100s does not fit the log: beside the seconds of its layers %s%s: check that it is the layout of the run that left the log, with its --stages, --chunks and --order; otherwise a GPU is slower than the others",
		layout, strings.Join(worst, ", "), more)
}
