package train

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/dynamic"
	"dynmo/src/elastic"
	"dynmo/src/kernel"
	"dynmo/src/layout"
	"dynmo/src/migrate"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/profile"
	"dynmo/src/record"
	"dynmo/src/trace"
)

// startFor is how long ranks wait for each other where nothing is known yet of how
// long things take: the first steps, and a step that changes the model.
const startFor = 5 * time.Minute

// startClock sets the zero of all ranks' clocks. Those of one host take that of
// the host's first rank; between hosts they differ by what a barrier leaves.
// Collective.
func (r *Rank) startClock() error {
	if err := r.World.Barrier(); err != nil {
		return err
	}
	all, err := r.World.Allgather(strconv.AppendInt(nil, device.Monotonic(), 10))
	if err != nil {
		return err
	}
	for rank, b := range all {
		if r.World.Peer(rank).Host != r.World.Peer(r.World.Rank()).Host {
			continue
		}
		zero, err := strconv.ParseInt(string(b), 10, 64)
		if err != nil {
			return err
		}
		r.Device.Clock().Zero(zero)
		break
	}
	return r.x.Stream.Sync() // events to come are read by the clock as it is now
}

// change lets the dynamism change the model before a step. In the step peers may
// take comm.deadline_seconds, or as long as the two last steps together if that is
// longer; in the first two, and in a step that changes the model, startFor.
func (r *Rank) change(step int, w elastic.World, l layout.Layout, s *model.Stage) (dynamic.Change, error) {
	w.All.SetDeadline(startFor)
	r.patience(w, 1)
	w.All.Post().SetPatience(r.stallFor())
	clock := r.Device.Clock()
	start := clock.Now()
	change, err := r.dynamism.Before(step, dynamic.Target{
		Stages: w.Stages, Replicas: w.Replicas, Exec: r.x, Stage: s, LR: learningRate(r.Config.Optimizer, step, r.Config.Train.Steps),
	})
	if err == nil && change.Structure {
		end := r.recycle()
		err = r.place(w, l, s)
		end()
	}
	if err != nil {
		return change, fmt.Errorf("dynamic: %w", err)
	}
	if !change.Structure {
		r.deadline(w, 1)
	}
	return change, r.journal.Changed(step, change, clock.Now()-start)
}

// deadline sets how long peers may take over so many steps, once two are known.
func (r *Rank) deadline(w elastic.World, steps float64) {
	if r.last[0] == 0 {
		return
	}
	least := time.Duration(r.Config.Comm.DeadlineSeconds * float64(time.Second))
	w.All.SetDeadline(max(least, time.Duration(steps*float64(r.last[0]+r.last[1]))))
}

// patience sets how long peers of this host may, which are seen alive: the watch of the
// host finds hangs earlier, and knows more.
func (r *Rank) patience(w elastic.World, steps float64) {
	w.All.SetPatience(time.Duration(2 * steps * float64(r.stallFor())))
}

// stallFor returns how long the ranks of a host may do nothing new: as long as the
// settings say, or five times the longest of the last steps if that is longer; in
// the first two startFor, since a GPU may be busy for a whole step.
func (r *Rank) stallFor() time.Duration {
	least := time.Duration(r.Config.Comm.StallSeconds * float64(time.Second))
	if r.last[0] == 0 {
		return max(least, startFor)
	}
	return max(least, 5*slices.Max(r.lately[:]))
}

// took remembers the time of a step.
func (r *Rank) took(step int, d time.Duration) {
	r.last[0], r.last[1] = r.last[1], d
	r.lately[step%len(r.lately)] = d
}

// feed returns what reads the microbatches of a replica in a step of a layout.
func (r *Rank) feed(step, replica int, l layout.Layout) func(m int) (tokens, targets []int32) {
	first := replica * l.Schedule.Microbatches
	return func(m int) ([]int32, []int32) { return r.batches.Read(r.Config.Run.Seed, step, first+m) }
}

// update agrees on loss and norm and applies the optimizer, unless they are not
// finite. Its time is added to what was done. Collective.
func (r *Rank) update(step int, done *pipeline.Result) (agreed pipeline.Agreement, skipped bool, err error) {
	clock := r.Device.Clock()
	span := trace.Span{Op: trace.Optimizer, Layer: -1, Microbatch: -1, Start: clock.Now()}
	if agreed, err = r.runner.Agree(done.Losses, r.ask()); err != nil {
		return agreed, false, err
	}
	if err = r.settle(); err != nil {
		return agreed, false, err
	}
	if skipped = !agreed.Finite(); !skipped {
		err = r.runner.Update(adamW(r.Config, step, agreed.Norm))
	}
	span.End = clock.Now()
	done.Spans, done.Instructions = append(done.Spans, span), append(done.Instructions, span)
	return agreed, skipped, err
}

// diverged returns the error that ends the run once a step is recorded: its loss or
// norm is not finite, and the settings skip no such step, or no more in a row.
func (r *Rank) diverged(a pipeline.Agreement) error {
	if a.Finite() {
		r.skipped = 0
		return nil
	}
	r.skipped++
	why := "train.on_nan = \"stop\""
	switch limit := r.Config.Train.NaNLimit; {
	case r.Config.Train.OnNaN == "stop":
	case r.skipped < limit:
		return nil
	default:
		why = fmt.Sprintf("train.nan_limit = %d steps in a row were skipped", limit)
	}
	return SharedError{error: fmt.Errorf("loss %v, gradient norm %v: not finite (%s)", a.Loss, a.Norm, why)}
}

// adamW returns the settings of a step's update: the learning rate of the
// step, and the gradient scaled down to the largest norm allowed.
func adamW(c config.Config, step int, norm float64) kernel.AdamW {
	o := c.Optimizer
	scale := 1.0
	if o.Clip > 0 && norm > o.Clip {
		scale = o.Clip / norm
	}
	return kernel.AdamW{
		LR: learningRate(o, step, c.Train.Steps), Beta1: o.Beta1, Beta2: o.Beta2, Eps: o.Eps,
		Decay: o.Decay, GradScale: scale,
	}
}

// learningRate returns the learning rate of a step: linear from 0 to LR over
// the warm-up, then half a cosine down to MinLR at the last step (Loshchilov &
// Hutter 2017).
func learningRate(o config.Optimizer, step, steps int) float64 {
	if step < o.Warmup {
		return o.LR * float64(step+1) / float64(o.Warmup)
	}
	progress := float64(step-o.Warmup) / float64(max(1, steps-1-o.Warmup))
	return o.MinLR + (o.LR-o.MinLR)*(1+math.Cos(math.Pi*min(1, progress)))/2
}

// own returns what this rank reports of itself.
func (r *Rank) own() profile.Own {
	o := profile.Own{Balancing: r.spent}
	if r.Joules != nil {
		o.Joules = r.Joules()
	}
	if r.Before > 0 {
		o.Resident = profile.Anonymous() - r.Before
	}
	o.Kept = r.Device.Kept()
	return o
}

// stragglers returns what rank 0 has to tell of ranks that are slower than the others.
func (r *Rank) stragglers(w elastic.World, l layout.Layout, m profile.Measurement) []record.Straggler {
	if r.journal == nil {
		return nil
	}
	var list []record.Straggler
	for _, s := range r.late.Note(m) {
		peer := w.All.Peer(l.Mesh.Rank(s.Stage, s.Replica))
		list = append(list, record.Straggler{Rank: peer.World, Host: peer.Host, Score: s.Score, Over: s.Over})
	}
	return list
}

// neighbours carries the messages of diffusion between the stages of a replica.
type neighbours struct{ *profile.Profiler }

func (n neighbours) Stage() int { return n.Stages.Rank() }

// Exchange sends out to a neighbouring stage and returns what it sends.
func (n neighbours) Exchange(stage int, out []float64) ([]float64, error) {
	if err := n.Stages.SendBytes(stage, comm.TagBalance, comm.Pack(out)); err != nil {
		return nil, err
	}
	b, err := n.Stages.RecvBytes(stage, comm.TagBalance)
	if err != nil {
		return nil, err
	}
	return comm.Unpack[float64](b), nil
}

// Max overwrites every value with its largest over all stages.
func (n neighbours) Max(values []float64) error {
	return comm.Allreduce(n.Stages, values, func(a, b float64) float64 { return max(a, b) })
}

// recycle closes the runner. Until the function that it returns is called, a device that
// recycles memory uses that of the runner's buffers again for what is made next; what
// layers that leave give up it keeps for the next time, and no longer.
func (r *Rank) recycle() (end func()) {
	r.Device.Recycle(true)
	r.runner.Close()
	r.Device.Recycle(true)
	return func() { r.Device.Recycle(false) }
}

// move takes layers, after so many steps, to where the next layout has them, and makes the
// world, the stage and the runner of that layout. What only the update reads may follow while the
// next step computes: see settle. Where a rank has no memory for that all stay where they
// are. Collective over the present world.
func (r *Rank) move(steps int, w elastic.World, m profile.Measurement, present, next layout.Layout, s *model.Stage) (elastic.World, *model.Stage, migrate.Moved, error) {
	if next.Equal(present) {
		return w, s, migrate.Moved{}, nil
	}
	defer r.recycle()()
	reached, behind := r.killer(steps), r.planner.OptimizerCanFollow(m.Table, present, next)
	var rest *migrate.Rest
	var err error
	if next.SameRanks(present) {
		s, rest, err = r.moveWithin(w, present, next, s, behind, reached)
	} else {
		w, s, rest, err = r.moveAcross(w, m, present, next, s, reached)
	}
	if err != nil {
		moved, err := r.refused(w, present, s, err)
		return w, s, moved, err
	}
	r.rest = rest
	if w.Outside() {
		return w, s, rest.Moved, nil
	}
	if err = r.regroup(next, s.Config); err == nil {
		err = r.place(w, next, s)
	}
	if full, failed := anyOf(w.All, err); failed != nil || full && !next.SameRanks(present) {
		return w, s, rest.Moved, fmt.Errorf("migrate: %w", errors.Join(err, failed))
	} else if full {
		s, moved, err := r.back(w, present, next, s, rest, err)
		return w, s, moved, err
	}
	r.runner.Forwarded(rest.Forwarded)
	return w, s, rest.Moved, rest.Start()
}

// anyOf reports whether any rank has an error. Collective.
func anyOf(all *comm.Group, err error) (bool, error) {
	failed := []int64{0}
	if err != nil {
		failed[0] = 1
	}
	err = comm.Allreduce(all, failed, func(a, b int64) int64 { return a + b })
	return failed[0] > 0, err
}

// settle ends the last move, if some of it is still on its way: before the update, and
// before anything else that reads all of a layer's state, as a checkpoint does.
func (r *Rank) settle() error {
	if r.rest == nil {
		return nil
	}
	r.Device.Recycle(true)
	defer r.Device.Recycle(false)
	err := r.rest.Settle()
	r.rest = nil
	return err
}

// end closes the records and returns how the run ended. Collective.
func (r *Rank) end(out Outcome, w elastic.World, l layout.Layout, s *model.Stage) (Outcome, error) {
	r.world, r.layout, r.stage = w, l, s
	if err := r.settle(); err != nil {
		return out, err
	}
	if err := errors.Join(r.leaveNext(out.Steps, out.Next), r.finishReleases(w)); err != nil {
		return out, err
	}
	if err := r.journal.End(); err != nil {
		return out, err
	}
	if r.Config.Train.Hash {
		var err error
		if out.Hash, err = r.hash(w, l, s); err != nil {
			return out, fmt.Errorf("hash: %w", err)
		}
	}
	return out, r.dismiss()
}

// Close gives back what the rank holds, the threads of its kernels too.
func (r *Rank) Close() {
	r.runner.Close()
	r.stage.Free()
	r.x.Close()
	r.x.Backend.Close()
}

// Leave closes the groups that are left, and the device. Collective over the
// world of the last step.
func (r *Rank) Leave() error {
	var err error
	if !r.world.Outside() {
		err = r.world.Close()
	}
	r.Stream.Close()
	return errors.Join(err, r.Device.Close())
}
