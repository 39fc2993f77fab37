package pipeline

import (
	"dynmo/src/comm"
	"dynmo/src/tensor"
)

// flow is the receives from one neighbour in one direction. They are posted in
// the order in which they will be needed, as soon as a buffer is free, so that
// messages travel while this rank computes.
type flow struct {
	peer, tag int
	order     []int // microbatches, as they will be needed
	free      []tensor.Mem

	next   int       // the first of order that is not posted
	posted []receive // of this step
	waited int       // how many of posted were waited for
}

type receive struct {
	microbatch int
	mem        tensor.Mem
	req        comm.Request
}

// post posts as many receives as there are buffers.
func (f *flow) post(g *comm.Group) error {
	for f.next < len(f.order) && len(f.free) > 0 {
		m := f.order[f.next]
		mem := f.free[len(f.free)-1]
		req, err := g.Recv(f.peer, f.tag+m%comm.TagMicrobatches, mem)
		if err != nil {
			return err
		}
		f.free = f.free[:len(f.free)-1]
		f.posted = append(f.posted, receive{m, mem, req})
		f.next++
	}
	return nil
}

// wait returns the memory that the oldest receive filled. The list is in the
// order of need, so it is the microbatch that is wanted.
func (f *flow) wait(microbatch int) (tensor.Mem, error) {
	head := f.posted[f.waited]
	if head.microbatch != microbatch {
		panic("pipeline: receives out of order")
	}
	f.waited++
	return head.mem, head.req.Wait()
}

// release makes a buffer free for the receives to come.
func (f *flow) release(g *comm.Group, mem tensor.Mem) error {
	f.free = append(f.free, mem)
	return f.post(g)
}

// restart begins a step.
func (f *flow) restart(g *comm.Group) error {
	f.next, f.posted, f.waited = 0, f.posted[:0], 0
	return f.post(g)
}

// progress drives the messages that are on their way.
func (f *flow) progress() error {
	for _, p := range f.posted[f.waited:] {
		if _, err := p.req.Test(); err != nil {
			return err
		}
	}
	return nil
}
