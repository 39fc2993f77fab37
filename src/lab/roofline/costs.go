package roofline

import (
	"fmt"
	"strings"

	"dynmo/src/comm"
	"dynmo/src/comm/local"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/dynamic"
	"dynmo/src/kernel"
	"dynmo/src/kernel/null"
	"dynmo/src/lab/study"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/pipeline"
	"dynmo/src/plan/search"
	"dynmo/src/random"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Costs returns the costs of a model's layers on a GPU, for settings of one stage. Of dynamism it
// takes only the layers that the kind adds to the chain. Layers that compute alike cost alike.
// Where replicas share out the pieces of layers, seconds are those of a replica that has all
// pieces: the same rows in products of fewer rows. Replicas are assumed to have equal work.
func Costs(c config.Config, g GPU) (cost.Table, error) {
	if c.ReplicasDiffer() {
		alone := c
		alone.Parallel.Replicas = 1
		out, err := Costs(alone, g)
		if err != nil {
			return out, err
		}
		seconds := out.Layers
		out.Layers = search.Dense(c).Layers
		for l := range out.Layers {
			out.Layers[l] = out.Layers[l].WithSeconds(seconds[l].Stage())
		}
		return out, nil
	}
	if g.Scores && (c.Model.Family != config.Default().Model.Family || c.Device.Precision != "f32") {
		return cost.Table{}, fmt.Errorf(`of %s: model.family = %q and device.precision = %q, want %q and "f32"`,
			g.Name, c.Model.Family, c.Device.Precision, config.Default().Model.Family)
	}
	out, err := g.costs(c)
	if g.Scores {
		for i := range out.Layers {
			storedActivations(&out.Layers[i], c)
		}
	}
	return out, err
}

// storedActivations sets what a block keeps of a microbatch where attention stores its scores,
//
//	34·s·b·h + 5·a·s²·b bytes
//
// with sequence s, b sequences, h channels and a heads (Korthikanti et al. 2022, section 4.1):
// attention has 11·s·b·h and the scores, the MLP 19·s·b·h, each norm 2·s·b·h.
func storedActivations(l *cost.Layer, c config.Config) {
	s, b, h, a := int64(c.Model.Sequence), int64(c.Parallel.MicrobatchSize), int64(c.Model.Hidden), int64(c.Model.Heads)
	scores := 5 * a * s * s * b
	switch {
	case strings.HasSuffix(l.Name, ".attention"):
		l.Bytes.Activations = 13*s*b*h + scores
	case strings.HasSuffix(l.Name, ".mlp"):
		l.Bytes.Activations = 21 * s * b * h
	case strings.HasPrefix(l.Name, "block."):
		l.Bytes.Activations = 34*s*b*h + scores
	}
}

// costs returns the table of Costs, with the activations that the model keeps.
func (g GPU) costs(c config.Config) (cost.Table, error) {
	out := cost.Table{Clock: cost.Estimated, Device: g.Name, Dispatch: dispatch}
	few, err := study.NewFew(c)
	if err != nil { // it is as small itself
		out.Layers = search.Dense(c).Layers
		stages, _, err := g.step(c, func(*kernel.Call, float64) {})
		for l, s := range stages {
			out.Layers[l] = out.Layers[l].WithSeconds(s)
		}
		return out, err
	}
	stages, taken, err := g.step(few.Config, func(*kernel.Call, float64) {})
	if err != nil {
		return cost.Table{}, err
	}
	out.Layers = search.Dense(few.Config).Layers
	for l, s := range stages {
		out.Layers[l] = out.Layers[l].WithSeconds(s)
	}
	return few.Whole(out, taken), nil
}

// AttentionShare returns the share of a block's seconds that attention over the scores takes,
// of settings without dynamism.
func AttentionShare(c config.Config, g GPU) (float64, error) {
	c.Model.Blocks, c.Model.Grain = 1, "block"
	attention := 0.0
	stages, _, err := g.step(c, func(call *kernel.Call, seconds float64) {
		if attends(call.Op) {
			attention += seconds
		}
	})
	if err != nil {
		return 0, err
	}
	return attention / stages[1].Seconds(), nil
}

// step returns the seconds of every layer for one microbatch, and the share of the tokens
// that routed blocks took; 1 if there are none. saw is told what each call takes.
func (g GPU) step(c config.Config, saw func(*kernel.Call, float64)) ([]cost.Stage, float64, error) {
	shape, precision := model.FromConfig(c), search.Precision(c)
	clock := device.NewKnown()
	dev := cpu.NewSparse(clock)
	x := &model.Exec{
		Device: dev, Stream: dev.NewStream(), B: c.Parallel.MicrobatchSize, T: c.Model.Sequence, Scale: 1,
		Backend: null.NewFused(precision, clock, func(call *kernel.Call) float64 {
			if call.Op == kernel.RouteTokens {
				deal(call)
			}
			seconds := g.Seconds(call, precision)
			saw(call, seconds)
			return seconds
		}),
	}
	defer x.Close()
	if err := x.Reserve(shape); err != nil {
		return nil, 0, err
	}
	stage, err := model.ZeroStage(shape, shape.All(), dev, precision)
	if err != nil {
		return nil, 0, err
	}
	defer stage.Free()
	world := comm.New(local.World(1)[0], comm.Options{Clock: clock})
	alone, err := world.Split(0, 0)
	if err != nil {
		return nil, 0, err
	}
	order, err := schedule.New(schedule.Kind1F1B, 1, 1, 1)
	if err != nil {
		return nil, 0, err
	}
	whole := layout.New(partition.Partition{0, shape.Layers()}, order, 1, layout.StageMajor)
	runner, err := pipeline.New(x, whole, stage, pipeline.Groups{Stages: world, Replicas: alone}, pipeline.Options{})
	if err != nil {
		return nil, 0, err
	}
	defer runner.Close()
	done, err := runner.Step(anyTokens(x.N(), c.Model.Vocab))
	if err != nil {
		return nil, 0, err
	}
	return byLayer(done.Spans, shape.Layers()), taken(done.Counts), nil
}

// deal lets the tokens of a router go to all experts in turn, as long as these have room.
func deal(c *kernel.Call) {
	for i := range tensor.Of[int32](c.Mem[0]) {
		tensor.Of[int32](c.Mem[0])[i] = -1
		if i/c.E < c.Routing.Room {
			tensor.Of[int32](c.Mem[0])[i] = int32(i % c.E)
		}
	}
}

// anyTokens returns a feed of tokens drawn evenly from a vocabulary.
func anyTokens(n, vocabulary int) pipeline.Feed {
	draw := random.Keyed(uint64(n), uint64(vocabulary))
	tokens := make([]int32, n+1)
	for i := range tokens {
		tokens[i] = draw.Int32N(int32(vocabulary))
	}
	return func(int) ([]int32, []int32) { return tokens[:n], tokens[1:] }
}

// byLayer returns the seconds of each layer's passes.
func byLayer(spans []trace.Span, layers int) []cost.Stage {
	stages := make([]cost.Stage, layers)
	for _, s := range spans {
		switch s.Op {
		case trace.F:
			stages[s.Layer].Forward += s.Seconds()
		case trace.I:
			stages[s.Layer].Input += s.Seconds()
		case trace.W:
			stages[s.Layer].Weight += s.Seconds()
		}
	}
	return stages
}

// taken returns the share of the tokens at routed blocks that these took.
func taken(counts []cost.Count) float64 {
	there, took := 0.0, 0.0
	for _, c := range counts {
		taken, of := dynamic.Taken(c.Name, c.Values)
		there, took = there+of, took+taken
	}
	if there == 0 {
		return 1
	}
	return took / there
}
