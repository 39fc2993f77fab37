package model

import (
	"fmt"

	"dynmo/src/comm"
	"dynmo/src/kernel"
	"dynmo/src/tensor"
)

// sliced is elements [lo, hi) of a layer's slabs that replicas divide among them. In the layer that owns
// them they are elements [lo+shift, hi+shift), of the first `of` that are divided. A replica gets the
// same elements in both layers.
type sliced struct{ lo, hi, shift, of int }

// sliceOf returns the range of a layer's first n elements that a replica has when `replicas` share
// them out, in whole blocks of SumSquares. No slice is larger than the first replica's. Source:
// Rajbhandari et al. 2020, ZeRO, stage 1. Departs: each layer is cut by itself, not all of a rank's
// parameters together. So the slice of a layer that migrates goes from one rank to one rank.
func sliceOf(n, replica, replicas int) (lo, hi int) {
	blocks := kernel.SquareBlocks(n)
	begin := func(d int) int { return min(n, (d*blocks+replicas-1)/replicas*kernel.SquareBlock) }
	return begin(replica), begin(replica + 1)
}

// LargestSlice returns the number of elements in the largest slice when n elements of a layer are
// divided among replicas.
func LargestSlice(n, replicas int) int {
	_, most := sliceOf(n, 0, replicas)
	return most
}

// share sets l.slices, l.lo and l.hi. Replicas divide the parameters that every replica has, and the
// borrowed ones. A replica keeps masters and moments of its slice, followed by those of its own
// parameters.
func (l *Layer) share(c Config) {
	l.lo, l.hi, l.slices = 0, l.own, nil
	defer l.assign()
	if c.Shards == 0 {
		return
	}
	l.lo, l.hi = sliceOf(l.shared, c.Replica, c.Shards)
	l.slices = []sliced{{0, l.shared, 0, l.shared}}
	if l.own == l.all {
		return
	}
	for _, t := range c.Ties() {
		if t.Borrower != l.ID {
			continue
		}
		owner := outline(c, c.Chain()[t.Owner], header{Layer: t.Owner}, l.dtype)
		lent := l.offset(t.Weight)
		shift := owner.offset(t.Weight) + t.First*t.Cols - lent
		l.slices = append(l.slices, sliced{lent, lent + t.Rows*t.Cols, shift, owner.shared})
	}
}

// offset returns the element of the slabs at which the parameter of a weight begins.
func (l *Layer) offset(weight string) (first int) {
	for _, p := range l.params {
		if p.Weight == weight {
			break
		}
		first += l.room(p)
	}
	return first
}

// Sliced reports whether replicas divide masters and moments of the layer among them.
func (l *Layer) Sliced() bool { return l.slices != nil }

// within returns the parts of a segment that a replica adds up and updates: those in its slices, or the
// whole segment if the layer is not sliced.
func (l *Layer) within(s segment, replica int) []segment {
	if !l.Sliced() {
		return []segment{s}
	}
	var list []segment
	for _, r := range l.slices {
		lo, hi := sliceOf(r.of, replica, l.config.Shards)
		list = s.appendCut(list, max(r.lo, lo-r.shift), min(r.hi, hi-r.shift))
	}
	return list
}

// appendCut adds to a list the part of the segment inside [lo, hi), unless it is empty.
func (s segment) appendCut(list []segment, lo, hi int) []segment {
	if lo, hi = max(s.lo, lo), min(s.hi, hi); lo >= hi {
		return list
	}
	return append(list, segment{lo, hi, min(max(0, s.decayed-(lo-s.lo)), hi-lo)})
}

// assign sets l.mine, the segments that this replica updates.
func (l *Layer) assign() {
	l.mine = nil
	for _, s := range l.updated {
		l.mine = append(l.mine, l.within(s, l.config.Replica)...)
		if l.Sliced() {
			l.mine = s.appendCut(l.mine, l.shared, l.own)
		}
	}
}

// SliceOfReduced returns the parts of Reduced that a replica adds up: its slice, or all if the layer
// is not sliced.
func (l *Layer) SliceOfReduced(replica int) (list []tensor.Mem) {
	for _, s := range l.reduced {
		for _, s := range l.within(s, replica) {
			list = append(list, span(l.g, l.dtype.Wide(), s.lo, s.hi))
		}
	}
	return list
}

// SliceOfWeights returns the weights that a replica updates, of those that are the same on all
// replicas: its slice, or all if the layer is not sliced.
func (l *Layer) SliceOfWeights(replica int) (list []tensor.Mem) {
	for _, s := range l.updated {
		for _, s := range l.within(s, replica) {
			list = append(list, span(l.w, l.dtype, s.lo, s.hi))
		}
	}
	return list
}

// SliceOfTie returns elements [lo, hi) of the tied matrix t, which this layer owns or borrows: those
// that a replica adds up and updates. They are all elements if the layer is not sliced.
func (l *Layer) SliceOfTie(t Tie, replica int) (lo, hi int) {
	first, n := l.offset(t.Weight), t.Rows*t.Cols
	if !l.Sliced() {
		return 0, n
	}
	if l.ID == t.Owner {
		first += t.First * t.Cols
	}
	for _, s := range l.within(segment{lo: first, hi: first + n}, replica) {
		return s.lo - first, s.hi - first
	}
	return 0, 0
}

// masterBytes returns the size of the master weights, 0 if there are none.
func (l *Layer) masterBytes() int64 {
	if l.dtype.Wide() == l.dtype {
		return 0
	}
	return int64(l.updates()) * l.dtype.Wide().Size()
}

// updates returns the number of elements of w whose masters and moments this replica has.
func (l *Layer) updates() int {
	n := l.hi - l.lo
	if l.Sliced() {
		n += l.own - l.shared
	}
	return n
}

// kept returns the masters or moments, in slab, of elements [lo, hi) of w. These must all be in this
// replica's slice, or all be of its own parameters.
func (l *Layer) kept(slab tensor.Mem, lo, hi int) tensor.Mem {
	first := l.lo
	if l.Sliced() && lo >= l.shared {
		first = l.shared - (l.hi - l.lo)
	}
	return span(slab, l.dtype.Wide(), lo-first, hi-first)
}

// updateSlabs returns the slabs of moments, and of masters if the layer has any.
func (l *Layer) updateSlabs() []*tensor.Mem {
	list := []*tensor.Mem{&l.m, &l.v}
	if l.dtype != l.dtype.Wide() {
		list = append(list, &l.master)
	}
	return list
}

// Unsliced runs f while every replica has all masters and moments of the layer. It gathers them before
// and cuts them again after. If the layer is not sliced it only calls f.
// Collective over the replicas if the layer is sliced.
func (l *Layer) Unsliced(x *Exec, f func() error) error {
	if !l.Sliced() {
		return f()
	}
	shards := l.config.Shards
	if err := l.gather(x); err != nil {
		return fmt.Errorf("slices: %w", err)
	}
	if err := f(); err != nil {
		return err
	}
	if err := l.scatter(x, shards); err != nil {
		return fmt.Errorf("slices: %w", err)
	}
	return nil
}

// WithMaster runs f while this replica has the whole master of a parameter. It gathers the slices of
// a sliced layer, waits for the stream, and drops the whole master after f. Without slices or
// masters it only calls f. Collective over the replicas if the layer is sliced.
func (l *Layer) WithMaster(x *Exec, p *Param, f func() error) error {
	if !l.Sliced() || l.dtype == l.dtype.Wide() || p.Own || p.Borrowed() {
		return f()
	}
	wide, first, me := l.dtype.Wide(), l.offset(p.Weight), x.Replicas.Rank()
	whole, err := l.device.Alloc(int64(p.Stored()) * wide.Size())
	if err != nil {
		return fmt.Errorf("master of %s: %w", p.Name, err)
	}
	slice, from := p.Master, p.From
	var sends, recvs []comm.Part
	for d := range x.Replicas.Size() {
		lo, hi := sliceOf(l.shared, d, l.config.Shards)
		part := span(whole, wide, min(max(0, lo-first), p.Stored()), max(0, min(hi-first, p.Stored())))
		if d != me {
			sends, recvs = append(sends, comm.Part{Rank: d, Mem: slice}), append(recvs, comm.Part{Rank: d, Mem: part})
		} else if part.Bytes > 0 {
			x.Stream.Copy(part, slice)
		}
	}
	round, err := x.Replicas.Exchange(comm.TagSection, sends, recvs, x.Stream.Record(nil))
	if err == nil {
		err = round.Wait()
	}
	if err == nil {
		err = x.Stream.Sync()
	}
	if err == nil {
		p.Master, p.From = whole, 0
		err = f()
		p.Master, p.From = slice, from
	}
	if syncs := x.Stream.Sync(); err == nil {
		err = syncs
	}
	l.device.Free(whole)
	return err
}

// gather makes masters and moments of a sliced layer whole on every replica. Collective over the
// replicas.
func (l *Layer) gather(x *Exec) error {
	wide, me := l.dtype.Wide(), x.Replicas.Rank()
	var sends, recvs []comm.Part
	var wholes []tensor.Mem
	for _, slab := range l.updateSlabs() {
		whole, err := l.device.Alloc(int64(l.own) * wide.Size())
		if err != nil {
			return l.failed(err, wholes)
		}
		wholes = append(wholes, whole)
		for d := range x.Replicas.Size() {
			lo, hi := sliceOf(l.shared, d, l.config.Shards)
			if d != me {
				sends = append(sends, comm.Part{Rank: d, Mem: l.kept(*slab, l.lo, l.hi)})
				recvs = append(recvs, comm.Part{Rank: d, Mem: span(whole, wide, lo, hi)})
			} else if lo < hi {
				x.Stream.Copy(span(whole, wide, lo, hi), l.kept(*slab, lo, hi))
			}
		}
		if l.Own() {
			x.Stream.Copy(span(whole, wide, l.shared, l.own), l.kept(*slab, l.shared, l.own))
		}
	}
	round, err := x.Replicas.Exchange(comm.TagSection, sends, recvs, x.Stream.Record(nil))
	if err == nil {
		err = round.Wait()
	}
	if err == nil {
		err = x.Stream.Sync()
	}
	if err != nil {
		return l.failed(err, wholes)
	}
	l.replace(wholes)
	l.config.Shards = 0
	l.share(l.config)
	l.point()
	return nil
}

// scatter keeps this replica's slice of masters and moments, which are whole before. The layer is
// cut into `shards` slices.
func (l *Layer) scatter(x *Exec, shards int) error {
	c := l.config
	c.Shards = shards
	lo, hi := sliceOf(l.shared, c.Replica, shards)
	var slices []tensor.Mem
	for _, slab := range l.updateSlabs() {
		wide := l.dtype.Wide()
		m, err := l.device.Alloc(int64(hi-lo+l.own-l.shared) * wide.Size())
		if err != nil {
			return l.failed(err, slices)
		}
		slices = append(slices, m)
		if lo < hi {
			x.Stream.Copy(span(m, wide, 0, hi-lo), span(*slab, wide, lo, hi))
		}
		if l.Own() {
			x.Stream.Copy(span(m, wide, hi-lo, hi-lo+l.own-l.shared), span(*slab, wide, l.shared, l.own))
		}
	}
	if err := x.Stream.Sync(); err != nil {
		return l.failed(err, slices)
	}
	l.replace(slices)
	l.config = c
	l.share(c)
	l.point()
	return nil
}

// replace frees the slabs of updateSlabs and puts others in their place.
func (l *Layer) replace(slabs []tensor.Mem) {
	for i, slab := range l.updateSlabs() {
		l.device.Free(*slab)
		*slab = slabs[i]
	}
}

// failed frees slabs and returns an error.
func (l *Layer) failed(err error, slabs []tensor.Mem) error {
	for _, m := range slabs {
		l.device.Free(m)
	}
	return err
}
