package pipeline

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/kernel"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// weightRounds is the rounds of messages in which replicas that share out masters send each
// other the weights that they have updated. A round begins with the update of its layer. It ends
// before the layer's first forward of the next step (see Runner.awaitWeights).
type weightRounds struct {
	layers []weightRound // by layer of the stage
	// tied sends this replica's slices of tied matrices from their owners to borrowers on other
	// stages. The borrowers' rounds follow: they send these slices on to the other replicas.
	tied  exchange
	after int // the last layer of the stage that sends slices in tied, -1: none
	begun int // rounds that have begun and not ended
}

// weightRound is the round of one layer.
type weightRound struct {
	exchange
	underWay bool     // it has begun and not ended
	borrows  []borrow // from owners on this stage
	remote   bool     // it borrows from owners on other stages
}

// borrow is a tied matrix that is copied once the owner's weights are complete.
type borrow struct {
	owner    int // layer of the stage
	dst, src tensor.Mem
}

// weightRounds makes the rounds; none unless layers are sliced.
func (p *planner) weightRounds() (w weightRounds) {
	r := p.r
	if !r.sliced() {
		return w
	}
	w.after = -1
	me, at := r.replicas.Rank(), make(map[int]int)
	for i, l := range r.s.Layers {
		at[l.ID] = i
		w.layers = append(w.layers, weightRound{})
		for d := range r.replicas.Size() {
			w.layers[i].add(d, me, l.SliceOfWeights)
		}
	}
	_ = r.eachTrainedTie(func(t model.Tie, owned, borrowed *model.Param) error { // returns no error
		switch {
		case owned != nil && borrowed != nil:
			to := &w.layers[at[t.Borrower]]
			to.borrows = append(to.borrows, borrow{at[t.Owner], borrowed.W, borrowedRows(owned.W, owned, t)})
		case owned != nil:
			if m := r.sliceOfTie(borrowedRows(owned.W, owned, t), t, t.Owner, me); m.Bytes > 0 {
				w.tied.sends = append(w.tied.sends, comm.Part{Rank: r.owners[t.Borrower], Mem: m})
			}
			w.after = max(w.after, at[t.Owner])
		default:
			slice := func(d int) []tensor.Mem { return []tensor.Mem{r.sliceOfTie(borrowed.W, t, t.Borrower, d)} }
			if m := slice(me)[0]; m.Bytes > 0 {
				w.tied.recvs = append(w.tied.recvs, comm.Part{Rank: r.owners[t.Owner], Mem: m})
			}
			to := &w.layers[at[t.Borrower]]
			to.remote = true
			for d := range r.replicas.Size() {
				to.add(d, me, slice)
			}
		}
		return nil
	})
	return w
}

// add adds the messages with replica d: slice returns what a replica sends.
func (w *weightRound) add(d, me int, slice func(replica int) []tensor.Mem) {
	if d == me {
		return
	}
	for _, m := range slice(me) {
		w.sends = append(w.sends, comm.Part{Rank: d, Mem: m})
	}
	for _, m := range slice(d) {
		w.recvs = append(w.recvs, comm.Part{Rank: d, Mem: m})
	}
}

// Update applies AdamW to every layer of the stage; where layers are sliced, to this replica's slices.
// Then it sends new weights to the layers that borrow them, and to the replicas that hold copies.
//
// Where layers are sliced it only begins to send the slices to the other replicas. The next forward
// of a layer, or FinishUpdate, waits for the layer's weights. Collective over the stages, and over the
// replicas too where layers are sliced or copied.
func (r *Runner) Update(a kernel.AdamW) error {
	var err error
	if r.sliced() {
		err = r.updateSlices(a)
	} else {
		for _, l := range r.s.Layers {
			l.Update(r.x, a)
		}
		if err = r.updateCopies(); err == nil {
			err = r.shareTied()
		}
	}
	if err != nil {
		return fmt.Errorf("pipeline: update: stage %d: %w", r.stage(), err)
	}
	if err := r.sync(); err != nil {
		return fmt.Errorf("pipeline: update: stage %d: %w", r.stage(), err)
	}
	return nil
}

// updateSlices updates the slices of this replica, and begins the rounds of weights: all ranks
// in one order.
func (r *Runner) updateSlices(a kernel.AdamW) error {
	w := &r.weights
	if w.after < 0 {
		if err := r.beginTied(); err != nil {
			return err
		}
	}
	for i, l := range r.s.Layers {
		l.Update(r.x, a)
		if i == w.after {
			if err := r.beginTied(); err != nil {
				return err
			}
		}
		if !w.layers[i].remote {
			if err := r.beginWeights(i); err != nil {
				return err
			}
		}
	}
	if err := w.tied.round.Wait(); err != nil {
		return fmt.Errorf("tied: %w", err)
	}
	for i := range w.layers {
		if w.layers[i].remote {
			if err := r.beginWeights(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// beginTied begins the round between stages.
func (r *Runner) beginTied() (err error) {
	q := &r.weights.tied
	if q.round, err = r.group.Exchange(comm.TagTied, q.sends, q.recvs, r.ready()); err != nil {
		return fmt.Errorf("tied: %w", err)
	}
	return nil
}

// beginWeights begins the round of a layer of the stage.
func (r *Runner) beginWeights(layer int) error {
	w := &r.weights.layers[layer]
	w.underWay = true
	r.weights.begun++
	return r.ofWeights(layer, w.begin(r))
}

// ofWeights adds to an error whose weights it concerns.
func (r *Runner) ofWeights(layer int, err error) error {
	if err != nil {
		return fmt.Errorf("weights of layer %d: %w", r.s.Layers[layer].ID, err)
	}
	return nil
}

// endWeights waits for the round of a layer of the stage, and copies what the layer borrows.
func (r *Runner) endWeights(layer int) error {
	w := &r.weights.layers[layer]
	if !w.underWay {
		return nil
	}
	w.underWay = false
	r.weights.begun--
	if err := w.round.Wait(); err != nil {
		return r.ofWeights(layer, err)
	}
	for _, b := range w.borrows {
		if err := r.endWeights(b.owner); err != nil {
			return err
		}
		r.x.Stream.Copy(b.dst, b.src)
	}
	return nil
}

// awaitWeights waits, before a forward, for the weights of a layer of a chunk that are still on
// their way. The time counts as a sum over replicas does.
func (r *Runner) awaitWeights(l *model.Layer) error {
	if r.weights.begun == 0 {
		return nil
	}
	layer := slices.Index(r.s.Layers, l)
	if !r.weights.layers[layer].underWay {
		return nil
	}
	n := r.begin(trace.Reduce, -1, schedule.Instr{Microbatch: -1})
	if err := r.endWeights(layer); err != nil {
		return err
	}
	r.end(n)
	return nil
}

// driveWeights drives the rounds of weights that are under way.
func (r *Runner) driveWeights() error {
	if r.weights.begun == 0 {
		return nil
	}
	for i := range r.weights.layers {
		if w := &r.weights.layers[i]; w.underWay {
			if _, err := w.round.Test(); err != nil {
				return r.ofWeights(i, err)
			}
		}
	}
	return nil
}

// FinishUpdate waits until this rank has all its layers' weights of the last Update. Every rank must
// call it before anything but Step or Validate reads or moves weights, and before Close. It begins no
// messages, so it is not collective: replicas may call it at different times. Without a round under
// way it returns at once.
func (r *Runner) FinishUpdate() error {
	if r.weights.begun == 0 {
		return nil
	}
	for i := range r.weights.layers {
		if err := r.endWeights(i); err != nil {
			return fmt.Errorf("pipeline: stage %d: %w", r.stage(), err)
		}
	}
	if err := r.sync(); err != nil {
		return fmt.Errorf("pipeline: weights: stage %d: %w", r.stage(), err)
	}
	return nil
}
