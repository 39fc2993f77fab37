package nodebench

import (
	"bytes"
	"time"

	"dynmo/src/comm"
	"dynmo/src/migrate"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/tensor"
)

const (
	// moveReach is the share of the bandwidth of plain C's messages that a whole migration of a
	// layer should reach.
	moveReach = 0.8
	// moveKept is the percentage of weights that the sparse layer keeps.
	moveKept = 10
)

// moveShape is a short chain of GPT-2 124M's blocks. Other layers are small, because they do not
// move.
var moveShape = model.Config{Blocks: 3, Hidden: 768, Heads: 12, Sequence: 8, Vocab: 64, Seed: 1}

// The second block moves from rank 1 to rank 0, and back.
var moveOwners = [2]partition.Owners{{0, 0, 1, 1, 1}, {0, 0, 0, 1, 1}}

const movedLayer = 2

// migration measures how fast a layer moves, dense or in compressed rows:
//
//	net/migrate_ratio_* = bytes / slower rank's seconds of migrate.Run / bandwidth in C
//
// Messages in C are as long as the layer's longest section. They walk through memory about as long
// as the layer, because a shorter buffer would stay in the caches. Rounds of messages and moves
// alternate. A layer arrives in memory that another layer left (see migrate.Run).
// net/migrate_first_dense is the first migration: it gets new pages, which the system clears on the
// way. A layer that arrives with another hash is wrong.
func (n *network) migration(sparse bool) error {
	name := "dense"
	if sparse {
		name = "csr"
	}
	m, err := n.newMove(sparse)
	if err != nil {
		return err
	}
	defer func() { m.stage.Free() }()
	length, bytes, err := m.lengths()
	if err != nil {
		return err
	}
	l, err := n.link(max(1, bytes/length) * length)
	if err != nil {
		return err
	}
	defer n.free()
	seconds := make(spans, 2) // of messages in C, and of moves, as the mean of both directions
	var first float64
	for round := range n.rounds.Count + 1 {
		took, err := n.exchange(l, n.walk, round, int(l.out.Bytes/length))
		if err != nil {
			return err
		}
		forth, err := m.run(moveOwners[0], moveOwners[1])
		if err != nil {
			return err
		}
		back, err := m.run(moveOwners[1], moveOwners[0])
		if err != nil {
			return err
		}
		if round == 0 {
			first = forth
			continue
		}
		n.rounds.show(round)
		seconds[0], seconds[1] = append(seconds[0], took), append(seconds[1], (forth+back)/2)
	}
	n.add("net/migrate_c_"+name, seconds.rate(0, float64(length)/1e9), "GB/s", 0, l.wrong)
	if !sparse { // the sparse layer reuses memory of the dense one
		n.add("net/migrate_first_"+name, single(float64(m.bytes)/first/1e9), "GB/s", 0, m.wrong)
	}
	n.add("net/migrate_"+name, seconds.rate(1, float64(m.bytes)/1e9), "GB/s", 0, m.wrong)
	n.add("net/migrate_ratio_"+name, seconds.ratio(0, 1, float64(m.bytes)/float64(length)), "ratio", moveReach, l.wrong+m.wrong)
	return nil
}

// walk exchanges out and in in plain C, in messages of equal length. It returns the mean seconds of
// a message.
func (n *network) walk(peer int, out, in tensor.Mem, messages int) (float64, error) {
	length, sum := out.Bytes/int64(messages), 0.0
	for off := int64(0); off < out.Bytes; off += length {
		took, err := n.plain(peer, out.Span(off, length), in.Span(off, length), 1)
		if err != nil {
			return 0, err
		}
		sum += took
	}
	return sum / float64(messages), nil
}

// move is the state on one of two ranks between which a layer moves back and forth.
type move struct {
	world *comm.Group
	x     *model.Exec
	stage *model.Stage
	bytes int64 // of one migration
	wrong int   // migrations that changed the layer
}

// newMove makes this rank's stage, and gives the layer moments. A sparse layer gets the structure
// of pruned weights.
func (n *network) newMove(sparse bool) (*move, error) {
	m := &move{world: n.world, x: &model.Exec{Device: n.dev, Backend: n.k, Stream: n.stream}}
	var err error
	if m.stage, err = model.NewStage(moveShape, moveOwners[0].Layers(n.world.Rank()), n.dev, tensor.F32); err != nil {
		return nil, err
	}
	layer := m.stage.Layer(movedLayer)
	if layer == nil {
		return m, nil
	}
	keep := make(map[int]model.Mask)
	for i, p := range layer.Params() {
		for j, moment := range []tensor.Mem{p.M, p.V} {
			values := tensor.Of[float32](moment)
			for x := range values {
				values[x] = float32(i + j + x%1000)
			}
		}
		if sparse && p.Prunable() {
			keep[i] = model.NewMask(p)
			for x := i; x < p.Stored(); x += 100 / moveKept {
				keep[i].Set(x)
			}
		}
	}
	if sparse {
		err = layer.Compress(keep, 0)
	}
	if err != nil {
		m.stage.Free()
	}
	return m, err
}

// lengths returns the bytes of the layer's longest section, and of all sections. Collective.
func (m *move) lengths() (longest, bytes int64, err error) {
	if layer := m.stage.Layer(movedLayer); layer != nil {
		for _, s := range layer.Sections() {
			longest, bytes = max(longest, s.Mem.Bytes), bytes+s.Mem.Bytes
		}
	}
	all := []int64{longest / 8 * 8, bytes}
	err = comm.Allreduce(m.world, all, func(a, b int64) int64 { return max(a, b) })
	return all[0], all[1], err
}

// run migrates and checks that the layer is unchanged. It returns the seconds of the slower rank.
// Collective.
func (m *move) run(from, to partition.Owners) (float64, error) {
	before, err := m.hash()
	if err != nil {
		return 0, err
	}
	seconds, err := m.timed(from, to)
	if err != nil {
		return 0, err
	}
	return seconds, m.compare(before)
}

// timed migrates and returns the seconds of the slower rank. Collective.
func (m *move) timed(from, to partition.Owners) (float64, error) {
	if err := m.world.Barrier(); err != nil {
		return 0, err
	}
	p, err := migrate.Within(from, to, m.world.Rank(), moveShape)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	stage, moved, err := migrate.Run(m.world, p, m.x, m.stage)
	seconds := []float64{time.Since(start).Seconds()}
	m.stage, m.bytes = stage, moved.Bytes
	if err != nil {
		return 0, err
	}
	err = comm.Allreduce(m.world, seconds, func(a, b float64) float64 { return max(a, b) })
	return seconds[0], err
}

// compare counts a migration as wrong if the layer's hash differs from before. Collective.
func (m *move) compare(before []byte) error {
	after, err := m.hash()
	if !bytes.Equal(before, after) {
		m.wrong++
	}
	return err
}

// hash returns the hash of the layer from the rank that has it. Collective.
func (m *move) hash() ([]byte, error) {
	var own []byte
	if layer := m.stage.Layer(movedLayer); layer != nil {
		sum, err := layer.Hash()
		if err != nil {
			return nil, err
		}
		own = sum[:]
	}
	all, err := m.world.Allgather(own)
	return bytes.Join(all, nil), err
}
