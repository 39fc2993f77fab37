package pipeline

import (
	"slices"

	"dynmo/src/comm"
	"dynmo/src/device"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// port is the far end of messages over one boundary of the chain, in one
// direction.
type port struct {
	peer  int  // the other rank
	tag   tags // of a microbatch
	index tags // of the index of its tokens
}

// tags gives microbatches a range of tags in turn. Where they wrap, messages are
// received in the order in which they were sent (see New).
type tags struct{ base, first, count int }

func (t tags) of(microbatch int) int { return t.base + (t.first+microbatch)%t.count }

// portOf returns the port for messages to virtual stage `to`, exchanged with
// the rank of virtual stage `with`. Tags tell the receiver's chunks apart: two
// ranks may exchange messages of several.
func portOf(s schedule.Schedule, base, to, with int) port {
	first := s.Map.Chunk(to) * s.Microbatches
	return port{s.Map.Stage(with), tags{base, first, comm.TagMicrobatches}, tags{comm.TagIndex, first, comm.TagIndexes}}
}

// flow is the input over one boundary of the chain in one direction. From another rank it arrives
// as messages. Their receives are posted in the order of their use, as soon as a buffer is free, so
// that messages travel while this rank computes. From a chunk of this rank nothing is posted, and
// only the buffers are used.
type flow struct {
	r *Runner
	port
	width model.Width // of the boundary
	upTo  bool        // messages may have fewer tokens than a full microbatch
	order []int       // microbatches, as they will be needed
	free  []tensor.Mem

	next   int       // the first of order that is not posted
	posted []receive // of this step
	waited int       // how many of posted were waited for
}

type receive struct {
	microbatch int
	mem        tensor.Mem
	req        comm.Request
}

// order returns the microbatches of some ops of a chunk, as the list has them.
func order(list []schedule.Instr, chunk int, ops ...schedule.Op) []int {
	var ms []int
	for _, in := range list {
		if in.Chunk == chunk && slices.Contains(ops, in.Op) {
			ms = append(ms, in.Microbatch)
		}
	}
	return ms
}

// take returns a free buffer.
func (f *flow) take() tensor.Mem {
	last := len(f.free) - 1
	mem := f.free[last]
	f.free = f.free[:last]
	return mem
}

// post posts as many receives as there are buffers, which are free once after
// has happened.
func (f *flow) post(after device.Event) error {
	for f.next < len(f.order) && len(f.free) > 0 {
		m, mem := f.order[f.next], f.take()
		begin := f.r.group.Recv
		if f.upTo {
			begin = f.r.group.RecvUpTo
		}
		req, err := begin(f.peer, f.tag.of(m), mem, after)
		if err != nil {
			return err
		}
		f.posted = append(f.posted, receive{m, mem, req})
		f.next++
	}
	return nil
}

// wait returns the memory that the oldest receive filled, and how many bytes of it.
// The list is in the order of need, so it is the microbatch that is wanted.
func (f *flow) wait(microbatch int) (mem tensor.Mem, bytes int64, err error) {
	head := f.posted[f.waited]
	if head.microbatch != microbatch {
		panic("pipeline: receives out of order")
	}
	f.waited++
	bytes, err = head.req.Received()
	return head.mem, bytes, err
}

// release makes a buffer free for a later message once after has happened. An
// absent one is ignored.
func (f *flow) release(mem tensor.Mem, after device.Event) error {
	if mem.IsZero() {
		return nil
	}
	f.free = append(f.free, mem)
	return f.post(after)
}

// restart begins a step: the device is done with the last one.
func (f *flow) restart() error {
	f.next, f.posted, f.waited = 0, f.posted[:0], 0
	return f.post(nil)
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
