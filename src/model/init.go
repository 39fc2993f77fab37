package model

import (
	"hash/fnv"
	"math/rand/v2"

	"dynmo/src/random"
)

// initialise draws a parameter's first values: normal with its deviation, or
// constant 1 or 0. The stream of a row is keyed by (seed, block, name, row of
// the whole matrix), so that grain, slices, placement and order of construction
// do not matter.
func (l *Layer) initialise(p *Param, seed uint64) error {
	name := fnv.New64a()
	name.Write([]byte(p.Name))
	var pcg rand.PCG
	draw := rand.New(&pcg)
	value := func() float64 { return p.Deviation * draw.NormFloat64() }
	switch {
	case p.Deviation < 0:
		value = func() float64 { return 1 }
	case p.Deviation == 0:
		return nil // Alloc gave zeros
	}
	return l.Set(p, func(w Values) error {
		for r := range p.Rows {
			random.Seed(&pcg, seed, uint64(p.block+1), name.Sum64(), uint64(p.First+r))
			for i := range p.Cols {
				w.Set(r*p.Cols+i, value())
			}
		}
		return nil
	})
}
