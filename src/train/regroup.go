package train

import (
	"dynmo/src/layout"
	"dynmo/src/model"
)

// draw makes what draws microbatches of which each is so many of the settings'.
func (r *Rank) draw(joined int) {
	if r.Corpus == nil {
		return
	}
	size := r.Config.Parallel.MicrobatchSize
	r.batches = r.Corpus.Joined(joined, size, r.x.T)
	if held := r.Corpus.Held(); held != nil {
		r.held = held.Batches(joined*size, r.x.T)
	}
}

// regroup makes ready for a layout whose microbatches have other numbers of the samples
// than the present ones. It is called without a runner.
func (r *Rank) regroup(next layout.Layout, shape model.Config) error {
	p := r.Config.Parallel
	joined := p.Microbatches / next.Schedule.Microbatches
	if joined*p.MicrobatchSize == r.x.B {
		return nil
	}
	r.x.Close()
	r.x.B = joined * p.MicrobatchSize
	r.draw(joined)
	return r.x.Reserve(shape)
}
