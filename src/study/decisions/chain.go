package decisions

import (
	"math"
	"math/rand/v2"

	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/kernel/null"
	"dynmo/src/model"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// family is a way in which the layers of a chain can cost different seconds.
type family struct {
	name string
	half bool // attention and MLP of a block are layers of their own
	// kept is the share of a block's weights that is left, where it is not all.
	kept func(at float64) float64
	// seconds is what a layer costs, in units of a dense block; at is its place in
	// the chain, in [0, 1].
	seconds func(l model.Description, at, kept float64, rnd *rand.Rand) float64
}

const (
	// fixedShare is the part of a block's seconds that does not shrink with its
	// weights, as in the made-up workload of pruning (dynamic).
	fixedShare = 1.0 / 7
	// second is what a dense block takes for a microbatch.
	second = 3e-3
	// headBlocks and embeddingBlocks: a vocabulary of 50,257 makes the head of a
	// small model cost 3.5 blocks or more; a lookup costs little.
	headBlocks, embeddingBlocks = 3.5, 0.2
	leastLayers, mostLayers     = 3, 6 // of the chain, for each stage
)

// families are the chains that decisions are tried on. Where weights are pruned
// the number that is left tells the cost; where tokens are routed it does not.
var families = []family{
	{name: "linear", kept: func(at float64) float64 { return 0.1 + 0.9*at }, seconds: bySparsity},
	// Weights whose deviation shrinks as 1/sqrt(depth), pruned by one threshold.
	{name: "pruned", kept: func(at float64) float64 { return math.Erfc(math.Sqrt(at)) }, seconds: bySparsity},
	{name: "ends", seconds: func(l model.Description, _, _ float64, _ *rand.Rand) float64 {
		switch l.Kind {
		case model.Embedding:
			return embeddingBlocks
		case model.Head:
			return headBlocks
		}
		return 1
	}},
	// An MLP has twice the weights of an attention.
	{name: "halves", half: true, seconds: func(l model.Description, _, _ float64, _ *rand.Rand) float64 {
		switch l.Kind {
		case model.Attention:
			return 0.4
		case model.MLP:
			return 0.6
		}
		return embeddingBlocks
	}},
	// Mixture of depths: every second block has an eighth of the tokens. A third of the
	// chain costs a third, as if frozen.
	{name: "steps", seconds: func(l model.Description, at, _ float64, _ *rand.Rand) float64 {
		seconds := 1.0
		if l.Block%2 == 1 {
			seconds = 1.0 / 8
		}
		if at < 1.0/3 {
			seconds /= 3
		}
		return seconds
	}},
	{name: "heavy", seconds: func(_ model.Description, _, _ float64, rnd *rand.Rand) float64 {
		return math.Exp(0.7 * rnd.NormFloat64())
	}},
}

// Families returns the names of the families of chains.
func Families() []string {
	var names []string
	for _, f := range families {
		names = append(names, f.name)
	}
	return names
}

func bySparsity(_ model.Description, _, kept float64, _ *rand.Rand) float64 { return sparse(kept) }

// sparse returns what a block costs with a share of its weights, in units of a dense
// one.
func sparse(kept float64) float64 { return fixedShare + (1-fixedShare)*kept }

// chain is the layers of a run as they are at its begin.
type chain struct {
	shape   model.Config
	kept    []float64    // by layer: share of the weights of a block's matrices
	seconds []cost.Stage // by layer: true, for a microbatch on a rank of speed 1
}

// newChain draws a chain of a family for so many stages. Embeddings have no backward for inputs.
func newChain(f family, stages int, seed uint64) chain {
	rnd := random.Keyed(seed, streamChain)
	blocks := stages*leastLayers + rnd.IntN(stages*(mostLayers-leastLayers)+1) - 2 // embedding and head
	if f.half {
		blocks /= 2
	}
	// A tiny model, since its arithmetic is left out; no two of the products that stand
	// for layers (see rank.counts) have equally many outputs.
	c := chain{shape: model.Config{Blocks: blocks, Hidden: 8, Heads: 1, Sequence: 1, Vocab: 7, HeadShards: 1, HalfGrain: f.half, Seed: seed}}
	layers := c.shape.Chain()
	for id, l := range layers {
		at, kept := float64(id)/float64(len(layers)-1), 1.0
		if f.kept != nil && l.Block >= 0 {
			kept = f.kept(at)
		}
		total := second * f.seconds(l, at, kept, rnd)
		c.kept = append(c.kept, kept)
		c.seconds = append(c.seconds, split(l, total))
	}
	return c
}

// split divides a layer's seconds evenly over its passes.
func split(l model.Description, total float64) cost.Stage {
	if l.Kind == model.Embedding {
		return cost.Stage{Forward: total / 2, Weight: total / 2}
	}
	return cost.Stage{Forward: total / 3, Input: total / 3, Weight: total / 3}
}

// exec returns what layers are made and run with where kernels do no arithmetic.
func exec(clock *device.Clock, shape model.Config, b kernelCosts) (*model.Exec, error) {
	dev := cpu.New(clock)
	x := &model.Exec{Device: dev, Backend: null.New(clock, b), Stream: dev.NewStream(), B: 1, T: shape.Sequence, Scale: 1}
	return x, x.Reserve(shape)
}

// outline returns the costs of a chain's layers whose weights have been pruned, with
// their true seconds.
func (c chain) outline() ([]cost.Layer, error) {
	x, err := exec(device.NewWall(), c.shape, nil)
	if err != nil {
		return nil, err
	}
	defer x.Close()
	s, err := model.NewStage(c.shape, c.shape.All(), x.Device, tensor.F32)
	if err != nil {
		return nil, err
	}
	defer s.Free()
	if err := c.prune(s); err != nil {
		return nil, err
	}
	var list []cost.Layer
	for id, l := range s.Layers {
		layer := l.Cost(x).With(c.seconds[id])
		list = append(list, layer)
	}
	return list, nil
}

// prune keeps the first weights of every matrix of a stage's blocks, as many as the
// chain has left.
func (c chain) prune(s *model.Stage) error {
	for _, l := range s.Layers {
		if c.kept[l.ID] == 1 {
			continue
		}
		masks := make(map[int]model.Mask)
		for i, p := range l.Params() {
			if !p.Prunable() {
				continue
			}
			mask := model.NewMask(p)
			for w := range int(c.kept[l.ID] * float64(p.Stored())) {
				mask.Set(w)
			}
			masks[i] = mask
		}
		if len(masks) == 0 {
			continue
		}
		if err := l.Compress(masks, neverCSR); err != nil {
			return err
		}
	}
	return nil
}

// neverCSR is a sparsity that no matrix reaches: all keep the format for which the
// kernels are known.
const neverCSR = 2
