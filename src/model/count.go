package model

import "strings"

// Parameters returns how many weights the model has. What layers borrow counts with its
// owner.
func (c Config) Parameters() int64 {
	n := int64(0)
	for _, d := range c.Chain() {
		for _, p := range d.params() {
			if !p.Borrowed() {
				n += int64(p.Rows) * int64(p.Cols)
			}
		}
	}
	return n
}

// Flops returns the floating-point operations by which the dense model is trained on one
// token of a whole sequence: forward 2 for each weight of the matrices of blocks and head
// that it is multiplied with, of the experts the share that it goes to,
// and 2·T·C for causal attention of each block; backward twice as many. What little norms,
// activations and the optimizer take is left out.
func (c Config) Flops() float64 {
	weights := 0.0
	for _, d := range c.Chain() {
		if d.Kind == Embedding || d.Kind == Exit {
			continue
		}
		for _, p := range d.params() {
			switch all := float64(p.Rows) * float64(p.Cols); {
			case p.Cols == 1:
			case strings.HasPrefix(p.Name, "expert."):
				weights += all * float64(c.Experts.Top) / float64(c.Experts.Count)
			default:
				weights += all
			}
		}
	}
	return 6*weights + 6*float64(c.Blocks)*float64(c.Sequence)*float64(c.Hidden)
}
