package kerneltest

import (
	"fmt"
	"math"

	"dynmo/src/kernel"
)

// depths returns the two calls of a block that takes a share of the tokens of sequences of
// these lengths, by its router alone and by guesses; of logits many are equal.
func (of maker) depths(lengths []int, capacity float64) (all []example) {
	offsets, r := offsetsOf(lengths), of.draw(givenSeed)
	n, most := int(offsets[len(lengths)]), 0
	for _, tokens := range lengths {
		most += kernel.First(capacity, tokens)
	}
	logits, guesses, positions := r.normal(n), r.normal(n), make([]int32, n)
	for i := range logits {
		switch {
		case i%3 == 0:
			logits[i] = 0.25
		case i%7 == 0:
			logits[i] = math.Copysign(0, float64(i%2)-0.5)
		}
		positions[i] = int32(3 * i)
	}
	for _, by := range []struct {
		note    string
		guesses any
		places  int
		one     bool
	}{{"", nil, most, false}, {",guesses", guesses, n + 2, true}} {
		settings := kernel.Depths{Capacity: capacity, Threshold: 0.6, One: by.one, Router: 0.5, Predictor: 0.25}
		call := func(op kernel.Op, places int) kernel.Call {
			return kernel.Call{Op: op, Dims: kernel.Dims{N: n, B: len(lengths), K: places}, Depths: settings}
		}
		note := fmt.Sprintf(",capacity=%g%s", capacity, by.note)
		given := map[string]any{"taken": filled(n), "logits": logits, "guesses": by.guesses, "offsets": offsets}
		if by.guesses == nil {
			given["dguesses"] = nil
		}
		take := of.example(call(kernel.TakeTokens, 0), note, given, bounded(ofDepths))
		given = map[string]any{"rows": filled(by.places), "listed": filled(by.places), "ends": filled(len(lengths) + 1),
			"taken": indices(take.operands[0].want), "logits": logits, "positions": positions, "offsets": offsets}
		all = append(all, take, of.example(call(kernel.ListTokens, by.places), note, given, bounded(ofDepths)))
	}
	return all
}

// ofDepths bounds results that are computed in float64 and rounded once; what is taken and
// where it is listed is exact.
func ofDepths(_ kernel.Dims, _, want values) values {
	bounds := values{}
	for name, x := range want {
		bounds[name] = make([]float64, len(x))
		for i := range x {
			if name == "dlogits" || name == "dguesses" || name == "factors" || name == "readings" && i > 2 {
				bounds[name][i] = math.Abs(x[i]) + 1e-3
			}
		}
	}
	return bounds
}
