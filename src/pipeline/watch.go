package pipeline

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// references are the activations that pass between chunks of a step's second model (see model.Watch),
// in host memory.
type references struct {
	memory model.Heap
	passed map[crossed]tensor.Mem // to chunks of this rank
}

// crossed names the input of a virtual stage for a microbatch.
type crossed struct{ virtual, microbatch int }

// end frees all memory, after a step.
func (f *references) end() {
	f.memory.Free()
	f.passed = nil
}

// watch runs the second model's layers of a chunk on replica 0, for the microbatches of the Watch, and
// compares the layers of the Watch. Their input comes from the second model in the chunk before, whose
// forward is over before this one begins.
func (r *Runner) watch(c *chunk, m int, tokens, targets []int32) error {
	w := r.s.Watch
	if w == nil || r.replicas.Rank() > 0 || m >= w.Microbatches || c.layers[0].ID > w.Last() {
		return nil
	}
	v := r.schedule.Map.Place(r.stage(), slices.Index(r.chunks, c))
	b, memory := c.active[m], model.Heap{Device: r.x.Device}
	defer memory.Free()
	state, err := r.receiveReference(c, v, m, &memory)
	if err != nil {
		return err
	}
	clock := r.x.Device.Clock()
	for i, l := range c.layers {
		if l.ID > w.Last() {
			return nil
		}
		batch := b.batches[i]
		live := l.Output(r.x, batch, c.inForward(b, i))
		if batch.Tokens == 0 || !l.Refers() || !l.Repeats() {
			state = live
			continue
		}
		began := clock.Now()
		if state, err = l.ReferenceForward(r.x, batch, &memory, state, tokens, targets); err != nil {
			return fmt.Errorf("layer %d (%s): reference: %w", l.ID, l.Name, err)
		}
		var seen []cost.Count
		if slices.Contains(w.Layers, l.ID) {
			var rows [2][][]float32
			for k, from := range []tensor.Mem{live, state} {
				if rows[k], err = l.Sequences(r.x, batch, from); err != nil {
					return fmt.Errorf("layer %d (%s): reference: %w", l.ID, l.Name, err)
				}
			}
			seen = w.Compare(l.ID, m, rows[0], rows[1])
		}
		for _, count := range append(seen, cost.Count{Name: model.WatchNanoseconds, Values: []int64{int64((clock.Now() - began) * 1e9)}}) {
			count.Layer, count.Microbatch = l.ID, m
			r.watched = append(r.watched, count)
		}
	}
	if c.layers[len(c.layers)-1].ID == w.Last() {
		return nil
	}
	return r.sendReference(c, v, m, state)
}

// receiveReference returns the input of the second model's layers of a chunk.
func (r *Runner) receiveReference(c *chunk, v, m int, memory *model.Heap) (state tensor.Mem, err error) {
	if v == 0 || c.active[m].entering.Tokens == 0 {
		return state, nil
	}
	host, ok := r.references.passed[crossed{v, m}]
	if !ok {
		host = r.references.memory.OnHost(c.entering.Bytes(r.x, c.active[m].entering.Tokens))
		if err := r.references.memory.Err; err != nil {
			return state, err
		}
		req, err := r.group.Recv(r.schedule.Map.Stage(v-1), r.referenceTag(v, m), host, nil)
		if err != nil {
			return state, err
		}
		if err := req.Wait(); err != nil {
			return state, err
		}
	}
	if state = memory.OnDevice(host.Bytes); memory.Err != nil {
		return state, memory.Err
	}
	return state, device.Write(r.x.Device, state, host)
}

// sendReference passes on the output of the second model's layers of a chunk.
func (r *Runner) sendReference(c *chunk, v, m int, state tensor.Mem) error {
	if state.Bytes == 0 {
		return nil
	}
	if err := r.x.Stream.Sync(); err != nil {
		return err
	}
	from, err := device.Read(r.x.Device, state)
	if err != nil {
		return err
	}
	host := r.references.memory.OnHost(state.Bytes)
	if err := r.references.memory.Err; err != nil {
		return err
	}
	copy(tensor.Of[byte](host), tensor.Of[byte](from))
	if to := r.schedule.Map.Stage(v + 1); to != r.stage() {
		_, err := r.send(to, r.referenceTag(v+1, m), host, nil)
		return err
	}
	if r.references.passed == nil {
		r.references.passed = make(map[crossed]tensor.Mem)
	}
	r.references.passed[crossed{v + 1, m}] = host
	return nil
}

// referenceTag returns the tag of the message with a virtual stage's input. It is one of the tags of
// validation, which never runs during a step.
func (r *Runner) referenceTag(v, m int) int {
	return comm.TagValidation + (r.schedule.Map.Chunk(v)*r.s.Watch.Microbatches+m)%(2*comm.TagChunks)
}
