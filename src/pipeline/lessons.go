package pipeline

import (
	"slices"

	"dynmo/src/comm"
	"dynmo/src/model"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

// lessons are the predictions of the last layer, for layers that learn from them (see model.Learner). The
// last layer's stage sends them to each stage of such a layer, in host memory.
type lessons struct {
	teacher  int        // stage of the last layer
	learners []int      // stages of layers that learn, ascending
	order    []int      // microbatches in the order of the teacher's forwards
	memory   tensor.Mem // on the host: I32 by microbatch and token
	tokens   []int      // by microbatch: tokens that reached the last layer; negative: not known yet
	posted   []comm.Request
}

// lessons allocates the lessons of a step; none if no layer of the chain learns.
func (p *planner) lessons() (l lessons) {
	r := p.r
	if !r.s.Config.Learns() {
		return l
	}
	last, microbatches := len(r.owners)-1, r.schedule.Microbatches
	l.teacher = r.owners[last]
	for id, d := range r.s.Config.Chain() {
		if d.Traits().Learns && id >= r.trained {
			l.learners = append(l.learners, r.owners[id])
		}
	}
	slices.Sort(l.learners)
	l.learners = slices.Compact(l.learners)
	m := r.schedule.Map
	l.order = order(r.schedule.Lists[l.teacher], m.Chunk(m.Virtual()-1), schedule.F)
	l.memory = p.OnHost(int64(microbatches*r.x.N()) * tensor.I32.Size())
	l.tokens, l.posted = make([]int, microbatches), make([]comm.Request, microbatches)
	return l
}

// of returns the memory of a microbatch's predictions.
func (l *lessons) of(r *Runner, m int) tensor.Mem {
	bytes := int64(r.x.N()) * tensor.I32.Size()
	return l.memory.Span(int64(m)*bytes, bytes)
}

// learns reports whether this rank learns from another.
func (l *lessons) learns(r *Runner) bool {
	return l.teacher != r.stage() && slices.Contains(l.learners, r.stage())
}

// restart begins a step. Messages have one tag: they arrive in the order of the teacher's forwards.
func (l *lessons) restart(r *Runner) error {
	for m := range l.tokens {
		l.tokens[m] = -1
	}
	if !l.learns(r) {
		return nil
	}
	for _, m := range l.order {
		req, err := r.group.RecvUpTo(l.teacher, comm.TagLikeliest, l.of(r, m), nil)
		if err != nil {
			return err
		}
		l.posted[m] = req
	}
	return nil
}

// teach sends, after a forward of the last layer, its predictions to the stages that learn from them.
func (l *lessons) teach(r *Runner, c *chunk, m int) error {
	at := len(c.layers) - 1
	if l.learners == nil || c.layers[at].ID != len(r.owners)-1 {
		return nil
	}
	b := c.active[m]
	from := c.layers[at].Likeliest(r.x, b.batches[at], c.inForward(b, at))
	said := l.of(r, m).Span(0, from.Bytes)
	r.x.Stream.Copy(said, from)
	l.tokens[m] = b.batches[at].Tokens
	for _, stage := range l.learners {
		if stage == r.stage() {
			continue
		}
		if _, err := r.send(stage, comm.TagLikeliest, said, r.ready()); err != nil {
			return err
		}
	}
	return nil
}

// learn passes the last layer's predictions for a microbatch to the layers of a chunk that learn.
func (l *lessons) learn(r *Runner, c *chunk, m int) error {
	b := c.active[m]
	for i, layer := range c.layers {
		if !layer.Traits.Learns || layer.ID < r.trained {
			continue
		}
		switch {
		case l.teacher == r.stage():
			if err := r.x.Stream.Sync(); err != nil {
				return err
			}
		case l.tokens[m] < 0:
			bytes, err := l.posted[m].Received()
			if err != nil {
				return err
			}
			l.tokens[m] = int(bytes / tensor.I32.Size())
		}
		b.work[i].(model.Learner).Learn(tensor.Of[int32](l.of(r, m))[:l.tokens[m]])
	}
	return nil
}
