package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/cost"
)

// Options are what Generate goes by besides the kind. Zero fields stand for
// defaults.
type Options struct {
	Start        int     // first step in which the model may differ from the dense one
	Every        int     // steps between changes; 0: prune a tenth of the run, freeze 50, exit 100 (paper, sections 3.1, 3.5 and 4.1), the others 1
	Microbatches int     // of a step; moe and mod need it
	Attention    float64 // share of a block's seconds that its attention over the scores takes; 0: 1/7
}

// defaultAttention is that share for the paper's models (sequences of T = 2048
// tokens, C = 1024 channels) if every operation costs the same: of a token's
// multiplications T·C are causal attention (2 products of T/2·C), 12·C² the
// block's matrices, so T/(T+12·C).
const defaultAttention = 1.0 / 7

// study is what the kinds work with.
type study struct {
	dense  []cost.Layer
	blocks []block // of every layer
	count  int     // blocks in the chain
	steps  int
	seed   uint64
	o      Options
}

// block is what a layer has to do with a block.
type block struct {
	index     int     // of the block in the chain; -1: the layer is embedding or head
	last      bool    // the block ends with this layer
	attention float64 // share of the layer's seconds in attention over the scores
	mlp       float64 // share in the MLP's products; the rest is those of attention
}

// state is a model at a step: its layers, and what its microbatches make of
// their seconds (see cost.Stretch; nil: 1).
type state struct {
	layers []cost.Layer
	scale  [][]float64
}

// kind is a kind of dynamism: how often it changes the model by default (0: ten
// times in a run), and the model from Start on.
type kind struct {
	every int
	at    func(s study, step int) state
}

var generators = map[string]kind{
	"prune": {0, study.prune}, "freeze": {50, study.freeze}, "exit": {100, study.exit},
	"moe": {1, study.moe}, "attention": {1, study.attention}, "mod": {1, study.mod},
}

// Generate makes up the costs of a dynamic training run, for studies without
// one: from the measured costs of the dense model and a kind of dynamism, what
// each layer costs in each of that many steps. Consecutive steps that cost the
// same share a stretch. Layers are known by their names: block.3, or
// block.3.attention and block.3.mlp; the others are never changed but by freeze.
//
//	prune      global magnitude pruning on the cubic schedule, CSR products
//	freeze     front-most layers stop training, one block after the other
//	moe        the fullest of a layer's experts sets the pace, by microbatch
//	attention  hashed sparse attention, by step and layer
//	exit       tokens leave before the last block, more and more of them
//	mod        every second block takes an eighth of the tokens
//
// What is assumed stands with each kind. Equal arguments give equal series,
// whatever is generated besides. The clock of the tables is sim.
func Generate(name string, dense cost.Table, steps int, seed uint64, o Options) (cost.Series, error) {
	k, ok := generators[name]
	o.Every = cmp.Or(o.Every, k.every, max(1, steps/10))
	if o.Attention == 0 {
		o.Attention = defaultAttention
	}
	switch {
	case !ok:
		return nil, fmt.Errorf("dynamism %q: unknown, wanted prune, freeze, moe, attention, exit or mod", name)
	case steps < 1:
		return nil, fmt.Errorf("steps: %d, wanted at least 1", steps)
	case o.Start < 0 || o.Every < 1:
		return nil, fmt.Errorf("changes from step %d on every %d steps, wanted at least 0 and 1", o.Start, o.Every)
	case !(o.Attention > 0 && o.Attention < 1):
		return nil, fmt.Errorf("share of attention: %v, wanted between 0 and 1", o.Attention)
	case o.Microbatches < 1 && (name == "moe" || name == "mod"):
		return nil, fmt.Errorf("microbatches: %d, wanted at least 1 for %s", o.Microbatches, name)
	}
	s := study{dense: dense.Layers, steps: steps, seed: seed, o: o}
	if err := s.findBlocks(); err != nil {
		return nil, err
	}
	var series cost.Series
	now := state{layers: s.dense}
	for step := range steps {
		next, change := now, ""
		if since := step - o.Start; since >= 0 && since%o.Every == 0 {
			next = k.at(s, step)
		}
		if !slices.Equal(now.layers, next.layers) || !slices.EqualFunc(now.scale, next.scale, slices.Equal[[]float64]) {
			change = name
		}
		if change != "" || step == 0 {
			table := dense
			table.Clock, table.Layers = "sim", next.layers
			series = append(series, cost.Phase{Step: step, Table: table, Scale: next.scale, Change: change})
		}
		now = next
		series[len(series)-1].Steps++
	}
	return series, nil
}

// findBlocks says what each layer has to do with a block, from its name.
func (s *study) findBlocks() error {
	a := s.o.Attention
	matrices := (1 - a) / 3 // attention's own: 4·C² of a block's 12·C² parameters
	for _, l := range s.dense {
		b := block{index: -1}
		if rest, ok := strings.CutPrefix(l.Name, "block."); ok {
			number, half, _ := strings.Cut(rest, ".")
			n, err := strconv.Atoi(number)
			if err != nil || n < 0 || n >= len(s.dense) {
				return fmt.Errorf("layer %q: wanted the number of its block, as in block.3, of %d layers", l.Name, len(s.dense))
			}
			switch b.index = n; half {
			case "":
				b.attention, b.mlp, b.last = a, 1-a-matrices, true
			case "attention":
				b.attention = a / (a + matrices)
			case "mlp":
				b.mlp, b.last = 1, true
			default:
				return fmt.Errorf("layer %q: wanted block.%d, block.%[2]d.attention or block.%[2]d.mlp", l.Name, n)
			}
			s.count = max(s.count, n+1)
		}
		s.blocks = append(s.blocks, b)
	}
	if s.count == 0 {
		return fmt.Errorf("layers: none of %d is called block.0, block.1, …", len(s.dense))
	}
	return nil
}

// change returns the dense model with the layers of its blocks changed.
func (s study) change(how func(l *cost.Layer, b block)) state {
	layers := slices.Clone(s.dense)
	for i, b := range s.blocks {
		if b.index >= 0 {
			how(&layers[i], b)
		}
	}
	return state{layers: layers}
}

// scaled returns the dense model, the seconds of the layers of its blocks times
// a factor for each microbatch. row fills in the factors of a layer.
func (s study) scaled(row func(to []float64, b block)) state {
	scale := make([][]float64, len(s.blocks))
	for i, b := range s.blocks {
		scale[i] = slices.Repeat([]float64{1}, s.o.Microbatches)
		if b.index >= 0 {
			row(scale[i], b)
		}
	}
	return state{s.dense, scale}
}

// slower multiplies the seconds of a layer.
func slower(l *cost.Layer, factor float64) {
	l.Forward *= factor
	l.BackwardInput *= factor
	l.BackwardWeight *= factor
}

// share multiplies bytes or numbers of parameters.
func share(n *int64, factor float64) { *n = int64(math.Round(float64(*n) * factor)) }
