package pipeline_test

import (
	"errors"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/pipeline"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// TestTrafficOfSlices: of a step without update a replica sends gradients alone, no sums; then
// it sends the weights of its slices, in their own type, to every other replica. It has masters
// and moments of these weights and of no others.
func TestTrafficOfSlices(t *testing.T) {
	const replicas = 3
	plan, shape := newSchedule(t, schedule.Kind1F1B, 1, 1), tiny
	shape.Hidden, shape.Shards = 64, replicas
	for _, dtype := range []tensor.DType{tensor.F32, tensor.BF16} {
		t.Run(dtype.String(), func(t *testing.T) {
			expect.OK(t, local.Run(replicas, func(tr comm.Transport) error {
				clock := device.NewWall()
				r, err := runner(tr, shape.AsReplica(tr.Rank(), 0), plan, clock, null.NewOf(dtype, clock, nil))
				if err != nil {
					return err
				}
				if err := r.replan(equal(tiny, plan.Map), plan, pipeline.Options{}); err != nil {
					return err
				}
				var gradients, weights, optimizer int64
				for _, l := range r.s.Layers {
					for d := range replicas {
						for _, m := range l.SliceOfReduced(d) {
							if d != tr.Rank() {
								gradients += m.Bytes
							}
						}
					}
					for _, m := range l.SliceOfWeights(tr.Rank()) {
						weights += m.Bytes
					}
					optimizer += l.Bytes(r.x).Optimizer
				}
				before := r.groups.Replicas.Sent()
				if _, err := r.Step(r.feed); err != nil {
					return err
				}
				between := r.groups.Replicas.Sent()
				if err := r.Update(kernel.AdamW{}); err != nil {
					return err
				}
				if err := r.FinishUpdate(); err != nil {
					return err
				}
				if got := between - before; got != gradients {
					t.Errorf("replica %d sends %d bytes of gradients, want %d", tr.Rank(), got, gradients)
				}
				if got := r.groups.Replicas.Sent() - between; got != (replicas-1)*weights {
					t.Errorf("replica %d sends %d bytes of weights, want %d", tr.Rank(), got, (replicas-1)*weights)
				}
				wide := int64(2 * tensor.F32.Size()) // moments, and masters where weights are rounded
				if dtype == tensor.BF16 {
					wide += tensor.F32.Size()
				}
				if optimizer != weights/dtype.Size()*wide {
					t.Errorf("replica %d has %d bytes of masters and moments, want those of %d weights", tr.Rank(), optimizer, weights/dtype.Size())
				}
				t.Logf("replica %d sends %d bytes of gradients and %d of weights, and has %d of masters and moments", tr.Rank(), gradients, (replicas-1)*weights, optimizer)
				return nil
			}))
		})
	}
}

// TestLostInWeights: a replica is lost after the others have begun their rounds of weights. Update does
// not wait for it. Whoever waits for the weights, a forward or FinishUpdate, gets the error of the loss
// and says which layer it waited for.
func TestLostInWeights(t *testing.T) {
	const replicas = 3
	lost := errors.New("lost")
	plan, shape := newSchedule(t, schedule.Kind1F1B, 1, 1), tiny
	shape.Hidden, shape.Shards = 64, replicas
	for name, wait := range map[string]func(r *member) error{
		"forward": func(r *member) error { _, err := r.Step(r.feed); return err },
		"finish":  func(r *member) error { return r.FinishUpdate() },
	} {
		t.Run(name, func(t *testing.T) {
			begun := make(chan bool, replicas)
			err := local.Run(replicas, func(tr comm.Transport) error {
				clock := device.NewWall()
				r, err := runner(tr, shape.AsReplica(tr.Rank(), 0), plan, clock, null.New(clock, nil))
				if err != nil {
					return err
				}
				if _, err := r.Step(r.feed); err != nil {
					return err
				}
				if tr.Rank() == replicas-1 {
					for range replicas - 1 {
						<-begun
					}
					return lost
				}
				err = r.Update(kernel.AdamW{})
				begun <- true
				if err != nil {
					return err
				}
				err = wait(r)
				if !errors.Is(err, lost) || !strings.Contains(err.Error(), ": weights of layer ") {
					t.Errorf("replica %d: %v, want the error of replica %d about weights of a layer", tr.Rank(), err, replicas-1)
				}
				return err
			})
			if !errors.Is(err, lost) {
				t.Errorf("%v, want the first error", err)
			}
		})
	}
}
