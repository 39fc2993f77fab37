package layouts

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"dynmo/src/cost"
	"dynmo/src/expect"
	"dynmo/src/schedule"
)

// peers is where TestPeers writes its cases.
var peers = flag.String("peers", "", "file of cases that bench/layout-peers.sh lets the trainers' own code judge")

// TestPeers writes cases with our answers: random texts, cuts by DeepSpeed's methods, and layouts for every
// trainer. bench/layout-peers.sh runs the trainers' own code on them.
func TestPeers(t *testing.T) {
	if *peers == "" {
		t.Skip("without -peers: bench/layout-peers.sh runs it beside checkouts of the trainers")
	}
	f, err := os.Create(*peers)
	expect.OK(t, err)
	defer f.Close()
	out := json.NewEncoder(f)
	out.SetEscapeHTML(false)
	rnd := rand.New(rand.NewPCG(5, 6))
	for n := range 4000 {
		expect.OK(t, out.Encode(textCase(rnd, n%2 == 0)))
	}
	for range 300 {
		n, stages := 1+rnd.IntN(50), 1+rnd.IntN(9)
		weights := make([]float64, n)
		for l := range weights {
			weights[l] = float64(rnd.IntN(5) * rnd.IntN(100)) // integers: sums are exact
		}
		expect.OK(t, out.Encode(map[string]any{
			"case": "deepspeed", "weights": weights, "stages": stages,
			"uniform": uniformCuts(n, stages), "balanced": balancedCuts(weights, stages),
		}))
	}
	for _, trainer := range trainers {
		for range 50 {
			expect.OK(t, out.Encode(layoutCase(t, rnd, trainer)))
		}
	}
}

// textCase returns a text with our verdict. random texts have any symbols; others are layouts in which a
// few symbols have changed.
func textCase(rnd *rand.Rand, random bool) map[string]any {
	const alphabet = "Etm L|()*0123456789,x"
	var text []byte
	if random {
		for range 1 + rnd.IntN(16) {
			text = append(text, alphabet[rnd.IntN(len(alphabet))])
		}
	} else {
		pieces := []string{"t", "tt", "t*3|", "|", "(tt|)*2", "(t|)*3", ",", "t*0", "t|t"}
		text = []byte("E")
		for range 1 + rnd.IntN(6) {
			text = append(text, pieces[rnd.IntN(len(pieces))]...)
		}
		text = append(text, []string{"L", "|L", "mL", "m|L", "mmL", "|m|L"}[rnd.IntN(6)]...)
		for range rnd.IntN(3) {
			text[rnd.IntN(len(text))] = alphabet[rnd.IntN(len(alphabet))]
		}
	}
	virtual, err := ParseMegatron(string(text))
	x := map[string]any{"case": "text", "text": string(text), "parsed": err == nil, "virtual": virtual}
	if err != nil {
		return x
	}
	all := strings.Join(virtual, "")
	var divisors []int
	for d := range len(virtual) + 1 {
		if d > 0 && len(virtual)%d == 0 {
			divisors = append(divisors, d)
		}
	}
	stages, blocks, mtps := divisors[rnd.IntN(len(divisors))], strings.Count(all, "t"), strings.Count(all, "m")
	switch rnd.IntN(8) {
	case 0:
		stages++
	case 1:
		blocks++
	case 2:
		mtps++
	}
	x["stages"], x["blocks"], x["mtps"] = stages, blocks, mtps
	x["valid"] = CheckMegatron(virtual, stages, blocks, mtps) == nil
	return x
}

// layoutCase returns the best layout of a random chain as a user gets it.
func layoutCase(t *testing.T, rnd *rand.Rand, trainer Trainer) map[string]any {
	t.Helper()
	p := Problem{Stages: 2 + rnd.IntN(4), Chunks: 1, Schedule: schedule.Kind1F1B}
	if trainer.Name == "megatron" || trainer.Name == "torchtitan" {
		p.Chunks = 1 + rnd.IntN(3)
	}
	p.Microbatches = p.Stages * (1 + rnd.IntN(3))
	if p.Chunks > 1 {
		p.Schedule = schedule.KindInterleaved
	}
	if trainer.Name == "torchtitan" && p.Chunks == 2 && rnd.IntN(2) == 0 {
		p.Schedule = schedule.KindZBV
	}
	var layers []cost.Layer
	add := func(name string, f float64) {
		layers = append(layers, cost.Layer{Name: name, Forward: f, BackwardInput: f, BackwardWeight: f})
	}
	add("embedding", rnd.Float64())
	blocks := p.Stages*p.Chunks + rnd.IntN(30)
	for b := range blocks {
		add(fmt.Sprintf("block.%d", b), 0.9+0.2*rnd.Float64())
	}
	mtps := 0
	if trainer.Name == "megatron" {
		mtps = rnd.IntN(3)
	}
	for k := range mtps {
		add(fmt.Sprintf("mtp.%d", k), 1)
	}
	add("head", 3*rnd.Float64())
	c, err := NewChain(layers)
	expect.OK(t, err)
	expect.OK(t, trainer.rules(&p, c, false))
	found, err := findBest(budget/1000, p, nil)
	expect.OK(t, err)
	cuts := found.Best[0].Cuts
	text, err := trainer.format(cuts, c, p)
	expect.OK(t, err)
	s, err := schedule.New(p.Schedule, p.Stages, p.Chunks, p.Microbatches)
	expect.OK(t, err)
	ranks := make([][]int, p.Stages) // by rank: its virtual stages
	for v := range p.Stages * p.Chunks {
		ranks[s.Map.Stage(v)] = append(ranks[s.Map.Stage(v)], v)
	}
	for _, list := range ranks {
		slices.Sort(list)
	}
	return map[string]any{
		"case": "layout", "for": trainer.Name, "text": text, "stages": p.Stages, "chunks": p.Chunks, "blocks": blocks, "mtps": mtps,
		"cuts": cuts, "ranks": ranks,
	}
}
