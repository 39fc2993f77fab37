package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/exit"
	"dynmo/src/kind/mod"
	"dynmo/src/kind/moe"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

var shape = model.Config{Blocks: 4, Hidden: 8, Heads: 2, Sequence: 4, Vocab: 16, Tied: true, HalfGrain: true, Seed: 3}

// changing is shape with exits and blocks that route tokens.
var changing = func() model.Config {
	c := shape
	c = c.With(exit.Exits{After: "1,3", Confidence: "classifier", Threshold: 0.5})
	c = c.With(mod.Depths{Capacity: 0.4, Predictor: true, Threshold: 0.5})
	return c
}()

// mixture is what replica 1 of two has that share experts out.
var mixture = func() model.Config {
	c := shape
	c.Family, c.Tied, c.Intermediate, c.NormEps, c.Rope.Base = "llama", false, 6, 1e-5, 1e4
	c = c.With(moe.Experts{Count: 4, Top: 2})
	return c.AsReplica(1, 2)
}()

// host is a device whose memory can run out.
type host struct {
	*cpu.Device
	full bool
}

func (h *host) Alloc(bytes int64) (tensor.Mem, error) {
	if h.full {
		return tensor.Mem{}, errors.New("out of memory")
	}
	return h.Device.Alloc(bytes)
}

// member is one stage of a test pipeline.
type member struct {
	group *comm.Group
	dev   *host
	x     *model.Exec
	s     *model.Stage
}

// newMember returns a rank that has some layers.
func newMember(t comm.Transport, c model.Config, layers []int) (*member, error) {
	clock := device.NewWall()
	m := &member{group: comm.New(t, comm.Options{Clock: clock}), dev: &host{Device: cpu.New(clock)}}
	m.x = &model.Exec{Device: m.dev, Backend: ref.New(tensor.F32), Stream: m.dev.NewStream(), B: 1, T: shape.Sequence}
	var err error
	if m.s, err = model.NewStage(c, layers, m.dev, tensor.F32); err != nil {
		return nil, err
	}
	for _, l := range m.s.Layers {
		if err := disturb(l); err != nil {
			return nil, err
		}
		if err := l.Refer(m.x); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// within migrates among the stages of a replica.
func (m *member) within(from, to partition.Owners) (*model.Stage, layout.Moved, error) {
	p, err := Within(from, to, m.group.Rank(), m.s.Config)
	if err != nil {
		return m.s, layout.Moved{}, err
	}
	return Run(m.group, p, m.x, m.s)
}

// disturb gives a layer moments, a counter and some unknown state. By its place in the chain a layer
// gets dense, masked or CSR matrices, frozen parameters, and thresholds.
func disturb(l *model.Layer) error {
	l.Updates = 10 + l.ID
	if _, ok := l.Tuning(); ok {
		l.Tune(1 / float64(l.ID))
	}
	l.SetState("text", fmt.Append(nil, "layer ", l.ID))
	m, err := l.AllocState("memory", int64(8*l.ID))
	if err != nil {
		return err
	}
	for i := range tensor.Of[float64](m) {
		tensor.Of[float64](m)[i] = float64(l.ID + i)
	}
	l.Freeze(func(p *model.Param) bool { return l.ID%2 == 0 && p.Prunable() })
	for _, p := range l.Params() {
		for _, mem := range []tensor.Mem{p.M, p.V} {
			for i := range tensor.Of[float32](mem) {
				tensor.Of[float32](mem)[i] = float32(l.ID*1000 + i)
			}
		}
	}
	keep := make(map[int]model.Mask)
	for j, p := range l.Params() {
		if p.Prunable() && l.ID%3 > 0 {
			keep[j] = model.NewMask(p)
			for i := l.ID; i < p.Stored(); i += 3 {
				keep[j].Set(i)
			}
		}
	}
	if len(keep) == 0 {
		return nil
	}
	return l.Compress(keep, float64(l.ID%3-1)) // 0: CSR, 1: masked
}

// inventory returns the hash of every layer of the pipeline, "" for a layer that is nowhere. A
// layer on two stages is an error.
func (m *member) inventory() ([]string, error) {
	var mine strings.Builder
	for _, l := range m.s.Layers {
		sum, err := l.Hash()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&mine, "%d %x\n", l.ID, sum)
	}
	all, err := m.group.Allgather([]byte(mine.String()))
	if err != nil {
		return nil, err
	}
	list := make([]string, m.s.Config.Layers())
	for stage, b := range all {
		for line := range strings.Lines(string(b)) {
			var id int
			var hash string
			if _, err := fmt.Sscanf(line, "%d %s", &id, &hash); err != nil {
				return nil, err
			}
			if list[id] != "" {
				return nil, fmt.Errorf("layer %d is on stage %d and on an earlier one", id, stage)
			}
			list[id] = hash
		}
	}
	return list, nil
}

// randomOwners returns owners of the model's layers, the same on all ranks.
func randomOwners(m partition.Map, layers int, key uint64) partition.Owners {
	return m.Owners(partitiontest.Random(random.Keyed(key), layers, m.Virtual()))
}

// TestMigrationConserves is law 6: after any moves each layer is on exactly one stage, with its
// state, and no memory is left behind. Stages have one part of the chain or several.
func TestMigrationConserves(t *testing.T) {
	conserves(t, shape)
	conserves(t, changing)
	conserves(t, mixture)
}

func conserves(t *testing.T, c model.Config) {
	for _, layout := range []partition.Map{
		partition.Line(2), partition.Line(3), partition.Line(5), partition.Line(c.Layers()),
		{Stages: 2, Chunks: 3}, {Stages: 3, Chunks: 2, Vee: true}, {Stages: 2, Chunks: 3, Vee: true},
	} {
		err := local.Run(layout.Stages, func(tr comm.Transport) error {
			now := randomOwners(layout, c.Layers(), 0)
			m, err := newMember(tr, c, now.Layers(tr.Rank()))
			if err != nil {
				return err
			}
			want, err := m.inventory()
			if err != nil {
				return err
			}
			for round := range uint64(20) {
				next := randomOwners(layout, c.Layers(), round+1)
				s, moved, err := m.within(now, next)
				if err != nil {
					return err
				}
				m.s = s
				if n := len(now.Moved(next)); moved.Layers != n || (moved.Bytes > 0) != (n > 0) {
					return fmt.Errorf("round %d: %+v, want %d layers", round, moved, n)
				}
				now = next
				var held []int
				for _, l := range s.Layers {
					held = append(held, l.ID)
				}
				if want := now.Layers(tr.Rank()); !slices.Equal(held, want) {
					return fmt.Errorf("round %d: stage holds layers %v, want %v", round, held, want)
				}
				got, err := m.inventory()
				if err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
				for l := range want {
					if got[l] != want[l] {
						return fmt.Errorf("round %d: layer %d has another state", round, l)
					}
				}
			}
			m.s.Free()
			if used := m.dev.Used(); used != 0 {
				return fmt.Errorf("%d bytes are left behind", used)
			}
			return nil
		})
		if err != nil {
			t.Errorf("%+v: %v", layout, err)
		}
	}
}

// TestNoRoom: if one stage has no room for its layers, all stages keep theirs, and say so.
func TestNoRoom(t *testing.T) {
	line := partition.Line(3)
	from, to := line.Owners(partition.Partition{0, 2, 5, 10}), line.Owners(partition.Partition{0, 4, 7, 10})
	err := local.Run(3, func(tr comm.Transport) error {
		m, err := newMember(tr, shape, from.Layers(tr.Rank()))
		if err != nil {
			return err
		}
		want, err := m.inventory()
		if err != nil {
			return err
		}
		used := m.dev.Used()
		m.dev.full = tr.Rank() == 1
		s, _, err := m.within(from, to)
		if err == nil || !strings.Contains(err.Error(), "nothing moved") {
			return fmt.Errorf("error %v, want one that says that nothing moved", err)
		}
		if tr.Rank() == 1 && !strings.Contains(err.Error(), "layer 5") {
			return fmt.Errorf("error %v does not name layer 5", err)
		}
		if s != m.s || m.dev.Used() != used {
			return fmt.Errorf("the stage changed: %d bytes in use, had %d", m.dev.Used(), used)
		}
		got, err := m.inventory()
		if err != nil {
			return err
		}
		for l := range want {
			if got[l] != want[l] {
				return fmt.Errorf("layer %d changed", l)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRefusesEmptyStages: a pipeline needs a layer on every stage. Only the last stages may hand
// over all their layers, and leave.
func TestRefusesEmptyStages(t *testing.T) {
	err := local.Run(3, func(tr comm.Transport) error {
		from := partition.Line(3).Owners(partition.Partition{0, 4, 7, 10})
		m, err := newMember(tr, shape, from.Layers(tr.Rank()))
		if err != nil {
			return err
		}
		if _, _, err := m.within(from, partition.Line(3).Owners(partition.Partition{0, 5, 5, 10})); err == nil {
			return errors.New("an empty stage before others was accepted")
		}
		s, _, err := m.within(from, partition.Line(2).Owners(partition.Partition{0, 6, 10}))
		if err != nil {
			return err
		}
		if want := []int{6, 4, 0}[tr.Rank()]; len(s.Layers) != want {
			return fmt.Errorf("stage %d holds %d layers, want %d", tr.Rank(), len(s.Layers), want)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
