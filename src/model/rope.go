package model

import (
	"math"

	"dynmo/src/device"
)

// Rope is rotary positions (Su et al. 2021): a query or key at position p has each of its
// pairs of channels turned by p times the pair's frequency. The zero value means that positions are
// not rotary.
type Rope struct {
	Base      float64 // pair i of a head of d channels turns by Base^(-2i/d) a position
	Scaling   string  // "" none, "linear" or "llama3"
	Factor    float64 // by which frequencies are divided
	Low, High float64 // llama3: frequencies below Low turns per Original positions are divided by Factor, above High not
	Original  int     // llama3: the positions of the original model
}

// Ways of Scaling, as Hugging Face's configurations name them.
const (
	RopeLinear = "linear"
	RopeLlama3 = "llama3"
)

// Turns reports whether positions are rotary.
func (r Rope) Turns() bool { return r.Base > 0 }

// frequencies returns by how much each of the pairs of a head turns in a position.
func (r Rope) frequencies(pairs int) []float64 {
	list := make([]float64, pairs)
	for i := range list {
		list[i] = r.scaled(math.Pow(r.Base, -float64(i)/float64(pairs)))
	}
	return list
}

// scaled returns a frequency as the scaling has it. llama3 (Llama 3.1's) divides frequencies with
// fewer than Low turns in Original positions by the full factor. It leaves frequencies of more than
// High turns. Between the two it interpolates in proportion.
func (r Rope) scaled(frequency float64) float64 {
	switch r.Scaling {
	case RopeLinear:
		return frequency / r.Factor
	case RopeLlama3:
		turns := float64(r.Original) * frequency / (2 * math.Pi)
		kept := max(0, min(1, (turns-r.Low)/(r.High-r.Low)))
		return (kept + (1-kept)/r.Factor) * frequency
	}
	return frequency
}

// positions returns the number of positions that tokens may have.
func (x *Exec) positions() int {
	if x.Text != nil {
		return x.Text.Room
	}
	return x.T
}

// turnsBytes returns the memory of the table of rotations.
func (x *Exec) turnsBytes(c Config) int64 {
	if !c.Rope.Turns() {
		return 0
	}
	return int64(x.positions()*(c.Hidden/c.Heads)) * x.Backend.DType().Wide().Size()
}

// table returns, for each position, the cosines of a head's pairs, then their sines.
func (r Rope) table(positions, pairs int) []float64 {
	frequencies := r.frequencies(pairs)
	list := make([]float64, 2*pairs*positions)
	for p := range positions {
		cosines, sines := list[2*pairs*p:][:pairs], list[2*pairs*p+pairs:][:pairs]
		for i, f := range frequencies {
			sines[i], cosines[i] = math.Sincos(float64(p) * f)
		}
	}
	return list
}

// writeTurns writes the table of rotations to the device.
func (x *Exec) writeTurns(c Config) error {
	if !c.Rope.Turns() {
		return nil
	}
	table := c.Rope.table(x.positions(), c.Hidden/c.Heads/2)
	mirror := device.Mirror(x.turns)
	set := writer(mirror, x.Backend.DType().Wide())
	for i, value := range table {
		set(i, value)
	}
	return device.Write(x.Device, x.turns, mirror)
}
