package migrate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition/partitiontest"
	"dynmo/src/random"
	"dynmo/src/schedule"
)

// drawn returns a random layout of c on some of the present ranks, the first one first, the others
// in any order.
func drawn(c model.Config, present []int, stages, replicas int, order layout.RankOrder, key uint64) (layout.Layout, error) {
	draw := random.Keyed(key)
	chunks := 1 + draw.IntN(min(2, c.Layers()/stages))
	s, err := schedule.New(schedule.KindInterleaved, stages, chunks, stages)
	if chunks == 1 {
		s, err = schedule.New(schedule.Kind1F1B, stages, 1, 1)
	}
	l := layout.New(partitiontest.Random(draw, c.Layers(), stages*chunks), s, replicas, order)
	rest := slices.Clone(present[1:])
	draw.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	l.Ranks = append([]int{present[0]}, rest[:stages*replicas-1]...)
	return l, err
}

// held returns the hash of every layer that a rank has, under the replica that it is.
func (m *member) held(l layout.Layout) (map[string]string, error) {
	replica := l.Mesh.Replica(m.group.Rank())
	own := make(map[string]string)
	for _, layer := range m.s.Layers {
		sum, err := layer.Hash()
		if err != nil {
			return nil, err
		}
		own[fmt.Sprintf("layer %d of replica %d", layer.ID, replica)] = fmt.Sprintf("%x", sum)
	}
	return own, nil
}

// all returns those of all ranks, and an error where two have the same.
func (m *member) all(l layout.Layout) (map[string]string, error) {
	own, err := m.held(l)
	if err != nil {
		return nil, err
	}
	var text strings.Builder
	for name, hash := range own {
		fmt.Fprintf(&text, "%s\t%s\n", name, hash)
	}
	lists, err := m.group.Allgather([]byte(text.String()))
	if err != nil {
		return nil, err
	}
	list := make(map[string]string)
	for rank, b := range lists {
		for line := range strings.Lines(string(b)) {
			name, hash, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if list[name] != "" {
				return nil, fmt.Errorf("%s is on rank %d and on an earlier one", name, rank)
			}
			list[name] = hash
		}
	}
	return list, nil
}

// between migrates where ranks change.
func (m *member) between(present, next layout.Layout) (*model.Stage, layout.Moved, error) {
	p, err := Between(present, next, m.group.Rank(), m.s.Config, func(layer int) bool { return !m.s.Config.SameParameters(m.s.Config.Whole(), layer) })
	if err != nil {
		return m.s, layout.Moved{}, err
	}
	return Run(m.group, p, m.x, m.s)
}

// TestAnyRanksConserve is law 6 where ranks leave and those that stay become any stage of
// any replica: each replica has every layer once, its own experts as they were, and the
// ranks that leave have no memory.
func TestAnyRanksConserve(t *testing.T) {
	for i, c := range []model.Config{shape, changing, mixture} {
		for seed := range uint64(6) {
			order := []layout.RankOrder{layout.StageMajor, layout.ReplicaMajor}[seed%2]
			replicas := 1 + int(seed/2)%3
			if c.Spread > 0 {
				replicas = c.Spread
			}
			if err := anyRanks(c, 5, replicas, order, 100*uint64(i)+10*seed); err != nil {
				t.Errorf("%d: %d replicas, %s: %v", i, replicas, order, err)
			}
		}
	}
}

func anyRanks(c model.Config, stages, replicas int, order layout.RankOrder, key uint64) error {
	world := make([]int, stages*replicas)
	for rank := range world {
		world[rank] = rank
	}
	return local.Run(len(world), func(tr comm.Transport) error {
		present, err := drawn(c, world, stages, replicas, order, key)
		if err != nil {
			return err
		}
		present.Ranks = nil
		at := func(l layout.Layout, rank int) (model.Config, []int) {
			return c.AsReplica(l.Mesh.Replica(rank), c.Spread), l.Owners().Layers(l.Mesh.Stage(rank))
		}
		shape, layers := at(present, tr.Rank())
		m, err := newMember(tr, shape, layers)
		if err != nil {
			return err
		}
		want, err := m.all(present)
		if err != nil {
			return err
		}
		for left, round := stages, uint64(1); ; round++ {
			ranks := present.WorldRanks()
			if round%2 == 0 { // else they only change places
				left--
			}
			if left == 0 {
				break
			}
			next, err := drawn(c, ranks, left, replicas, order, key+round)
			if err != nil {
				return err
			}
			if m.s, _, err = m.between(present, next); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			color := comm.Outside
			rank, stays := next.Place(tr.Rank())
			if stays {
				color = 0
			}
			if m.group, err = m.group.Split(color, rank); err != nil {
				return err
			}
			if !stays {
				return m.empty()
			}
			if shape, layers := at(next, rank); !reflect.DeepEqual(m.s.Config, shape) || !slices.EqualFunc(m.s.Layers, layers, func(l *model.Layer, id int) bool { return l.ID == id }) {
				return fmt.Errorf("round %d: rank %d has %d layers of replica %d, want %v of %d", round, rank, len(m.s.Layers), m.s.Config.Replica, layers, shape.Replica)
			}
			got, err := m.all(next)
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			for name, hash := range want {
				if got[name] != hash {
					return fmt.Errorf("round %d: %s has another state", round, name)
				}
			}
			present = next
		}
		m.s.Free()
		return m.empty()
	})
}

// empty returns an error if memory is in use.
func (m *member) empty() error {
	if used := m.dev.Used(); used != 0 {
		return fmt.Errorf("%d bytes are left behind", used)
	}
	return nil
}

// TestAnyRanksNoRoom: if a rank of another replica has no room for its layers, all ranks keep theirs.
func TestAnyRanksNoRoom(t *testing.T) {
	err := local.Run(6, func(tr comm.Transport) error {
		present, err := drawn(shape, []int{0, 1, 2, 3, 4, 5}, 3, 2, layout.StageMajor, 1)
		if err != nil {
			return err
		}
		present.Ranks = nil
		m, err := newMember(tr, shape, present.Owners().Layers(present.Mesh.Stage(tr.Rank())))
		if err != nil {
			return err
		}
		want, err := m.all(present)
		if err != nil {
			return err
		}
		next, err := drawn(shape, []int{0, 1, 2, 3}, 2, 2, layout.StageMajor, 2)
		if err != nil {
			return err
		}
		next.Ranks = []int{0, 5, 2, 1} // rank 5 is of the last stage, and becomes replica 1 of the first
		used := m.dev.Used()
		m.dev.full = tr.Rank() == 5
		s, _, err := m.between(present, next)
		if err == nil || !strings.Contains(err.Error(), "nothing moved") {
			return fmt.Errorf("error %v, want one that says that nothing moved", err)
		}
		if s != m.s || m.dev.Used() != used {
			return fmt.Errorf("the stage changed: %d bytes in use, had %d", m.dev.Used(), used)
		}
		got, err := m.all(present)
		if err != nil {
			return err
		}
		for name := range want {
			if got[name] != want[name] {
				return fmt.Errorf("%s changed", name)
			}
		}
		next.Ranks = []int{0, 5, 2, 7}
		if _, _, err := m.between(present, next); err == nil || !strings.Contains(err.Error(), "rank 7 has left") {
			return fmt.Errorf("error %v, want one that names rank 7", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
