package search

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/expect"
	"dynmo/src/partition"
	"dynmo/src/plan/plantest"
	"dynmo/src/schedule"
)

// TestLeastLimit: no cuts keep to a memory limit. The error names the smallest limit that some cuts
// keep to, checked against all cuts of small chains. With that limit a run begins, and a plan is
// found. Diffusion assumes the largest gradient sums of any cuts. Static cuts are not searched.
func TestLeastLimit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10)) // fixed seed: a failure must repeat
	number := regexp.MustCompile(`wanted at least (\d+)`)
	for _, kind := range []schedule.Kind{"1f1b", "zb-h1", "zb-h2", "gpipe", "list", "auto", "interleaved", "zb-v"} {
		for n := range 6 {
			c := plantest.Settings(kind, 9, 4, 4)
			c.Model.Hidden, c.Parallel.Replicas, c.Parallel.MicrobatchSize = 32, 1+rnd.IntN(3), 2
			c.Balance.Kind = []string{"partition", "partition", "diffusion", "uniform"}[n%4]
			costs := plantest.Chain(9, 1, uint64(n))
			for l := range costs.Layers {
				b := &costs.Layers[l].Bytes
				b.Gradients = rnd.Int64N(3*schedule.BucketBytes(c.Parallel.Replicas)/int64(1+rnd.IntN(100))) / 64 * 64
				b.Parameters, b.Optimizer = b.Gradients, 2*b.Gradients
				b.Activations, b.Held = rnd.Int64N(1<<22), rnd.Int64N(1<<20)
			}
			if c.Balance.MemoryLimitBytes = 1000; c.Validate() != nil {
				continue // diffusion of several chunks
			}
			plan := func(limit int64) (*Problem, error) {
				c.Balance.MemoryLimitBytes = limit
				p := planner(t, c, plantest.Link)
				p.fixed = Fixed(c)
				_, err := begin(p, costs).FirstLayout()
				return p, err
			}
			p, err := plan(1000)
			if err == nil || !strings.HasPrefix(err.Error(), "balance.memory_limit_bytes = 1000: memory: ") {
				t.Fatalf("%s, draw %d: error %v", kind, n, err)
			}
			told := number.FindStringSubmatch(err.Error())
			if told == nil {
				t.Fatalf("%s, draw %d: no limit in %v", kind, n, err)
			}
			least, err := strconv.ParseInt(told[1], 10, 64)
			expect.OK(t, err)
			name := fmt.Sprintf("%s, draw %d, %s, %d replicas, limit %d", kind, n, c.Balance.Kind, c.Parallel.Replicas, least)
			want := leastOfAll(p, c, func(cuts partition.Partition) int64 { return slices.Max(begin(p, costs).bytesInBase(cuts)) })
			if c.Balance.Kind == "partition" && least != want || least < want {
				t.Errorf("%s: %d would do", name, want)
			}
			if _, err := plan(least - 1); err == nil {
				t.Errorf("%s: a byte less does too", name)
			}
			p, err = plan(least)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if c.Balance.Kind == "partition" {
				if _, err := begin(p, costs).BestLayout(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
}

// leastOfAll returns the least of some bytes of all cuts.
func leastOfAll(p *Problem, c config.Config, bytes func(partition.Partition) int64) int64 {
	least := int64(0)
	cuts := make(partition.Partition, p.forms[0].Virtual()+1)
	cuts[len(cuts)-1] = c.Layers()
	var place func(v int)
	place = func(v int) {
		if v == len(cuts)-1 {
			if b := bytes(cuts); least == 0 || b < least {
				least = b
			}
			return
		}
		for cuts[v] = cuts[v-1] + 1; cuts[v] <= c.Layers()-(len(cuts)-1-v); cuts[v]++ {
			place(v + 1)
		}
	}
	place(1)
	return least
}
