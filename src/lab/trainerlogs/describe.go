package trainerlogs

import (
	"fmt"
	"math"

	"dynmo/src/cost"
)

// doubtful is the share of the seconds of a part that a fit may leave unexplained without a note.
const doubtful = 0.1

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

// doubts names the parts that a fit explains badly.
func doubts(parts []part, list [weight]passFit) (notes []string) {
	for i, p := range parts {
		if x := unexplained(list, i); math.Abs(x) > doubtful {
			notes = append(notes, fmt.Sprintf("%s took %+.0f %% beside what its layers take elsewhere: is the layout that of the run, and the GPU as fast as the others?", p.name, 100*x))
		}
	}
	return notes
}
