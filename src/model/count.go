package model

// Parameters returns how many weights the model has, whatever of it this replica has. What
// layers borrow counts with its owner.
func (c Config) Parameters() int64 {
	n := int64(0)
	for _, d := range c.Whole().Chain() {
		for _, p := range d.Params() {
			if !p.Borrowed() {
				n += int64(p.Rows) * int64(p.Cols)
			}
		}
	}
	return n
}

// Active returns how many of the weights a token meets.
func (c Config) Active() int64 { return c.Parameters() - c.idle() }

// idle returns how many weights a token does not meet.
func (c Config) idle() (n int64) {
	for _, e := range c.Kinds.list() {
		n += e.Idle(c)
	}
	return n
}

// Flops returns the floating-point operations by which the model is trained on one token of
// a whole sequence that neither leaves early nor passes by a block: forward 2 for each
// weight that it meets of the matrices of blocks and head, and 2·T·C for causal attention of
// each block; backward twice as many. What little norms, activations and the optimizer take
// is left out.
func (c Config) Flops() float64 {
	weights := -float64(c.idle())
	for _, d := range c.Whole().Chain() {
		if d.Kind == Embedding || d.Kind == Exit {
			continue
		}
		for _, p := range d.Params() {
			if p.Cols > 1 {
				weights += float64(p.Rows) * float64(p.Cols)
			}
		}
	}
	return 6*weights + 6*float64(c.Blocks)*float64(c.Sequence)*float64(c.Hidden)
}
