package migrate

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/expect"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// copied is a model whose five experts three replicas share out, each with two places to spare.
var copied = func() model.Config {
	c := mixture.With(moe.Experts{Count: 5, Top: 2, BlockRows: 4, Spare: 2})
	return c.AsReplica(0, 3)
}()

// randomPieces returns a random owner for every expert of every block, and random copies.
func randomPieces(draw *rand.Rand, c model.Config) piece.Assignment {
	var blocks []piece.Map
	for range c.Blocks {
		var experts piece.Map
		for range model.KindOf[moe.Experts](c).Count {
			on := draw.Perm(c.Spread)[:1+draw.IntN(c.Spread)]
			slices.Sort(on[1:])
			experts = append(experts, on)
		}
		blocks = append(blocks, experts)
	}
	return piece.New(blocks)
}

// contents returns, by parameter, the weights, and where this replica updates them the moments.
func contents(s *model.Stage) map[string]string {
	list := make(map[string]string)
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			sum := fnv.New64a()
			sum.Write(tensor.Of[byte](p.W))
			list[p.Weight+" weights"] = fmt.Sprint(sum.Sum64(), p.Frozen)
			if !p.Copy {
				sum.Write(tensor.Of[byte](p.M))
				sum.Write(tensor.Of[byte](p.V))
				list[p.Weight+" moments"] = fmt.Sprint(sum.Sum64())
			}
		}
	}
	return list
}

// TestPiecesConserve is law 6 of pieces of layers: wherever they go, each has one owner, and every
// replica that holds it has its weights, and the owner its moments.
func TestPiecesConserve(t *testing.T) {
	expect.OK(t, local.Run(3, func(tr comm.Transport) error {
		c := copied.AsReplica(tr.Rank(), 3)
		m, err := newMember(tr, c, nil)
		if err == nil {
			m.s, err = model.NewStage(c, c.All(), m.dev, tensor.F32)
		}
		if err != nil {
			return err
		}
		for _, l := range m.s.Layers {
			l.Freeze(func(*model.Param) bool { return l.ID%3 == 0 })
			for _, p := range l.Params() {
				for i, mem := range []tensor.Mem{p.M, p.V} {
					key := fnv.New64a()
					fmt.Fprint(key, p.Weight, i)
					for k := range tensor.Of[float32](mem) {
						tensor.Of[float32](mem)[k] = float32(random.Keyed(key.Sum64(), uint64(k)).NormFloat64())
					}
				}
			}
		}
		want, err := all(m.group, contents(m.s))
		if err != nil {
			return err
		}
		for round := range uint64(20) {
			full := round%5 == 4 && tr.Rank() == 1
			m.dev.full = full
			before := m.s
			rest := &Rest{group: m.group, x: m.x}
			next, err := rest.Regroup(m.group, m.group, randomPieces(random.Keyed(round), c), nil, m.s)
			m.dev.full = false
			if _, none := errors.AsType[*NoRoomError](err); none != (round%5 == 4) || err != nil && !none {
				return fmt.Errorf("round %d: %v", round, err)
			}
			if err != nil && next != before {
				return fmt.Errorf("round %d: another stage though nothing moved", round)
			}
			m.s = next
			got, err := all(m.group, contents(m.s))
			if err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			for name, value := range want {
				if got[name] != value {
					return fmt.Errorf("round %d: %s: %s, want %s", round, name, got[name], value)
				}
			}
		}
		return nil
	}))
}

// all returns what all replicas have, and an error where two differ, or two have moments of an
// expert.
func all(group *comm.Group, mine map[string]string) (map[string]string, error) {
	var text strings.Builder
	for name, value := range mine {
		fmt.Fprintf(&text, "%s\t%s\n", name, value)
	}
	lists, err := group.Allgather([]byte(text.String()))
	if err != nil {
		return nil, err
	}
	list, seen := make(map[string]string), make(map[string]int)
	for rank, b := range lists {
		for line := range strings.Lines(string(b)) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), "\t")
			if list[name] != "" && list[name] != value {
				return nil, fmt.Errorf("%s of replica %d differs", name, rank)
			}
			list[name] = value
			if seen[name]++; seen[name] > 1 && strings.Contains(name, "expert") && strings.HasSuffix(name, "moments") {
				return nil, fmt.Errorf("%s: replica %d has them too", name, rank)
			}
		}
	}
	return list, nil
}
