package launch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"dynmo/src/kind/moe"
	expertplace "dynmo/src/kind/moe/place"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/piece"
	"dynmo/src/plan"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/random"
)

// TestCopiesResume is law 2 for a run that resumes with the copies of its checkpoint, with fewer
// places for copies, or with none.
func TestCopiesResume(t *testing.T) {
	const sets = spread + copies + "dynamic.kind=moe moe.experts=5 parallel.stages=2 train.steps=6"
	c := small(t, sets)
	still := goRun(t, onOne(c), nil)
	saved := session{dir: t.TempDir(), stop: 3, balancer: scattered(1)}
	first := saved.train(t, c)
	for _, spare := range []int{2, 1, 0} {
		c := small(t, sets, fmt.Sprint("moe.spare=", spare))
		then := session{from: saved.dir}
		if at := joined(first, then.train(t, c)).difference(still); at != "" {
			t.Errorf("moe.spare = %d: differs from an undisturbed run at %s", spare, at)
		}
	}
}

// TestCopiesAnywhere is law 1 over 100 maps of experts and copies on each of two to five replicas,
// beside other kinds and migrations of layers.
func TestCopiesAnywhere(t *testing.T) {
	if !long {
		t.Skip("runs with DYNMO_LONG=1: rows of TestLaws have a few maps")
	}
	for replicas := 2; replicas <= 5; replicas++ {
		for k, kind := range []string{"moe", "freeze+moe", "moe+exit", "moe+mod", "moe+layerdrop"} {
			c := small(t, chosen, spread, copies, "parallel.microbatches=2 train.steps=32 moe.experts=9 dynamic.kind="+kind, fmt.Sprint(" parallel.replicas=", replicas))
			still := goRun(t, onOne(c), nil)
			c.Parallel.Stages = 1 + k%3
			s := session{balancer: scattered(uint64(k)), pieces: uint64(10*replicas + k)} // 24 maps
			same(t, s.train(t, c), still)
		}
	}
}

// placing is a balancer that also moves pieces of layers at random, if settings allow it.
type placing struct {
	policy.Balancer
	shape      model.Config
	seed, step uint64
}

func (p *placing) Decide(m profile.Measurement, now layout.Layout) (layout.Layout, plan.Reason, error) {
	next, why, err := p.Balancer.Decide(m, now)
	if p.step++; p.step%4 > 0 && p.shape.CountPieces() > 0 { // in other steps pieces stay
		next.Pieces = randomPieces(random.Keyed(p.seed, p.step), p.shape)
	}
	return next, why, err
}

// randomPieces returns a random place for the experts of every block, and random copies in some of
// the free places.
func randomPieces(draw *rand.Rand, shape model.Config) piece.Assignment {
	var maps []piece.Map
	e := model.KindOf[moe.Experts](shape)
	places := expertplace.Places(e.Count, shape.Spread, e.Spare)
	for range shape.Blocks {
		m, held := make(piece.Map, e.Count), make([]int, shape.Spread)
		take := func(expert, replica int) {
			if held[replica] < places && !slices.Contains(m[expert], replica) {
				m[expert], held[replica] = append(m[expert], replica), held[replica]+1
			}
		}
		for expert := range m {
			for len(m[expert]) == 0 {
				take(expert, draw.IntN(shape.Spread))
			}
		}
		for range draw.IntN(4 * e.Count) {
			take(draw.IntN(e.Count), draw.IntN(shape.Spread))
		}
		for _, on := range m {
			slices.Sort(on[1:])
		}
		maps = append(maps, m)
	}
	return piece.New(maps)
}
