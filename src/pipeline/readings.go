package pipeline

import (
	"cmp"
	"math"
	"slices"

	"dynmo/src/cost"
	"dynmo/src/model"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// reading is numbers that forwards of a layer leave for the host.
type reading struct {
	layer, index int          // of the chunk, of the layer's readings
	host         tensor.Mem   // F64 by microbatch and value; of rows I32 by microbatch
	counts       []cost.Count // by microbatch; none of a loss, or of rows
}

// readings allocates host memory for the readings of a chunk's layers. It takes the memory of losses
// from losses and returns the rest.
func (p *planner) readings(c *chunk, losses tensor.Mem) tensor.Mem {
	microbatches := p.r.schedule.Microbatches
	for i, l := range c.layers {
		for k, what := range l.Readings() {
			bytes := 8 * int64(what.Values*microbatches)
			if what.Name == model.Loss {
				if p.err == nil {
					c.readings = append(c.readings, reading{layer: i, index: k, host: losses.Span(0, bytes)})
					losses = losses.Span(bytes, losses.Bytes-bytes)
				}
				continue
			}
			if what.Worked != nil {
				c.rows = append(c.rows, reading{layer: i, index: k, host: p.OnHost(tensor.I32.Size() * int64(microbatches))})
				continue
			}
			counts := make([]cost.Count, microbatches)
			for m := range counts {
				counts[m] = cost.Count{
					Name: what.Name, Layer: l.ID, Microbatch: p.r.replicas.Rank()*microbatches + m, Values: make([]int64, what.Values),
				}
			}
			c.readings = append(c.readings, reading{i, k, p.OnHost(bytes), counts})
			p.r.counts = append(p.r.counts, counts...)
		}
	}
	slices.SortStableFunc(p.r.counts, func(a, b cost.Count) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Microbatch, b.Microbatch), cmp.Compare(a.Name, b.Name))
	})
	return losses
}

// read enqueues copies of a microbatch's readings to the host.
func (r *Runner) read(c *chunk, m int) {
	a := c.active[m]
	for _, list := range [][]reading{c.readings, c.rows} {
		for _, at := range list {
			from := c.layers[at.layer].Reading(r.x, a.batches[at.layer], c.inForward(a, at.layer), at.index)
			r.x.Stream.Copy(at.host.Span(int64(m)*from.Bytes, from.Bytes), from)
		}
	}
}

// count sets the values of r.counts from the readings of a step, whose copies to the host are done.
func (r *Runner) count() {
	for _, c := range r.chunks {
		for _, at := range c.readings {
			values := tensor.Of[float64](at.host)
			for _, count := range at.counts {
				for i := range count.Values {
					count.Values[i] = whole(values[i])
				}
				values = values[len(count.Values):]
			}
		}
	}
}

// share sets the number of tokens in the spans of layers whose tokens only the device knew (see
// model.Reading), by layer and microbatch.
func (r *Runner) share() {
	for _, c := range r.chunks {
		for _, at := range c.rows {
			l, rows := c.layers[at.layer], tensor.Of[int32](at.host)
			worked := l.Readings()[at.index].Worked
			for i, span := range r.spans {
				if span.Op == trace.F && span.Layer == l.ID {
					r.spans[i].Tokens = worked(int(rows[span.Microbatch]))
				}
			}
		}
	}
}

// whole returns the integer part of a number, or 0 if no int64 has it. A sum of losses is such a
// number if one loss is not finite: Go's conversion of it depends on the processor.
func whole(x float64) int64 {
	if !(math.Abs(x) < 1<<62) {
		return 0
	}
	return int64(x)
}
