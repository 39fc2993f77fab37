package nodebench

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/data"
	"dynmo/src/device"
	"dynmo/src/dynamic/routing"
	"dynmo/src/kernel"
	"dynmo/src/kind/moe"
	"dynmo/src/model"
	"dynmo/src/pipeline"
	"dynmo/src/store"
	"dynmo/src/tensor"
)

// Slots and SlotReplicas are what a recording of routing has: two steps of 32 microbatches,
// each of eight replicas.
const Slots, SlotReplicas = 64, 8

// recordedSeed keeps what is recorded apart from what a run with another seed trained on.
const recordedSeed = 0x726f757465

// text are the files of a directory that are text for people.
var text = []string{".md", ".html", ".txt"}

// Routing says where tokens go in the experts of a checkpoint.
type Routing struct {
	from   *store.Checkpoint
	shape  model.Config
	size   int // sequences of a microbatch
	corpus *data.Corpus
	made   routing.Recording
}

// NewRouting returns the routing of a checkpoint on the data that it trained on, or on what
// lies at another path. A microbatch is one passage, as a long sequence is. Errors say what
// of the checkpoint, the data or the numbers does not fit.
func NewRouting(from *store.Checkpoint, name, path string, slots, replicas int) (r *Routing, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("routing: %w", err)
		}
	}()
	settings, _, err := from.Config()
	if err != nil {
		return nil, err
	}
	shape := model.FromConfig(settings).Whole()
	if model.KindOf[moe.Experts](shape).Count == 0 {
		return nil, fmt.Errorf("checkpoint %s: no experts: want dynamic.kind with moe", from.Dir)
	}
	r = &Routing{from: from, shape: shape, size: settings.Parallel.MicrobatchSize}
	if r.made, err = routing.New(routing.Recording{
		Name: name, Experts: model.KindOf[moe.Experts](shape).Count, Top: model.KindOf[moe.Experts](shape).Top, Blocks: shape.Blocks,
		Slots: slots, Replicas: replicas, Tokens: replicas * r.size * shape.Sequence,
	}); err != nil {
		return nil, err
	}
	if path != "" {
		if data.IsTokens(path) != data.IsTokens(settings.Data.Path) {
			return nil, fmt.Errorf("%s: want what the run's data.path is, %q: both text, or both token files", path, settings.Data.Path)
		}
		settings.Data = config.Default().Data
		settings.Data.Path, settings.Data.Extensions = path, text
	}
	r.corpus, err = data.Open(settings.Data, shape.Vocab, r.size*shape.Sequence)
	return r, err
}

// Record records where tokens go, forward alone. It measures how far routers tell tokens
// apart, beside the same model as it began:
//
//	routing/fullest             tokens of the fullest expert over those of the mean one, of a slot
//	routing/entropy             of an expert's choice, in bits: Σ -f·log2 f
//	routing/entropy_of_token    the same among tokens of one kind: what knowing the token leaves open
//	routing/first               share of a token's weights that its first expert has
//
// All are means over the blocks that have tokens, those with token kinds over the blocks
// that see all.
func (r *Routing) Record(k kernel.Backend, dev device.Device) (routing.Recording, []Result, error) {
	b := newBench(k, dev)
	for _, trained := range []bool{false, true} {
		figures, err := r.look(k, dev, trained)
		if err != nil {
			return r.made, nil, fmt.Errorf("routing: %w", err)
		}
		prefix := map[bool]string{false: "routing/untrained_", true: "routing/"}[trained]
		for _, f := range figures {
			b.add(prefix+f.name, single(f.value), f.unit, 0, 0)
		}
	}
	b.add("routing/fullest", single(fullest(r.made)), "ratio", 0, 0)
	return r.made, b.results, b.err
}

// look has the model choose experts, as it began or as it is; of the latter loads are kept.
func (r *Routing) look(k kernel.Backend, dev device.Device, trained bool) ([]figure, error) {
	x := &model.Exec{Device: dev, Backend: k, Stream: dev.NewStream(), B: r.size, T: r.shape.Sequence}
	w, err := newRouted(x, r.shape, r.corpus.Batches(1, r.size*r.shape.Sequence))
	if err != nil {
		return nil, err
	}
	defer w.free()
	if trained {
		if err := w.load(r.from); err != nil {
			return nil, err
		}
	}
	if err := w.record(x, r.made, trained); err != nil {
		return nil, err
	}
	return w.figures(), nil
}

// fullest returns the tokens of the fullest expert over those of the mean one, the mean
// over blocks and slots.
func fullest(r routing.Recording) float64 {
	sum, alone := 0.0, routing.Contiguous(r.Experts, r.Experts)
	for block := range r.Blocks {
		for slot := range r.Slots {
			sum += alone.Fullest(r.Loads(block, slot), r.Experts)
		}
	}
	return sum / float64(r.Blocks*r.Slots)
}

// routed looks where a model sends the tokens of a corpus.
type routed struct {
	*stepper
	batches *data.Batches
	tokens  []int32 // of the microbatch under way
	blocks  []choices
	seen    func(block int, loads []int64) error
}

// choices is what a block's router chose.
type choices struct {
	of          map[int32][]float64 // assignments by token kind and expert
	first, all  float64             // weights
	assignments float64
}

func newRouted(x *model.Exec, c model.Config, batches *data.Batches) (*routed, error) {
	s, err := newStepper(x, c, 1, false)
	if err != nil {
		return nil, err
	}
	return &routed{stepper: s, batches: batches, blocks: make([]choices, c.Blocks)}, nil
}

// load replaces the weights by those of a checkpoint.
func (w *routed) load(from *store.Checkpoint) error {
	for i, l := range w.stage.Layers {
		saved, err := from.Layer(l.ID, w.stage.Config, w.x.Device, w.x.Backend.DType())
		if err != nil {
			return err
		}
		l.Free()
		w.stage.Layers[i] = saved
	}
	return nil
}

// untrainedSlots is how many slots tell enough of a model that is as it began.
const untrainedSlots = 8

// record fills in a recording; of a model as it began nothing but the choices is kept.
func (w *routed) record(x *model.Exec, r routing.Recording, keep bool) error {
	if err := w.freeze(func(int) bool { return true }); err != nil {
		return err
	}
	slots := min(r.Slots, untrainedSlots)
	if keep {
		slots = r.Slots
	}
	chain, block, memory := w.stage.Config.Chain(), -1, model.Heap{Device: x.Device}
	defer memory.Free()
	for _, l := range w.stage.Layers {
		// The first layer of a block that has experts chooses for those behind it.
		if d := moe.DispatchOf(l.NewWork(x, &memory)); d != nil && chain[l.ID].Block != block {
			block = chain[l.ID].Block
			l.Watch = w.watch(block, d.Experts)
		}
	}
	for slot := range slots {
		w.seen = func(block int, loads []int64) error {
			if !keep {
				return nil
			}
			return r.Add(block, slot, loads)
		}
		for replica := range r.Replicas {
			tokens, targets := w.batches.Read(recordedSeed, slot, replica)
			w.tokens = tokens
			if _, err := w.runner.Step(pipeline.Feed(func(int) ([]int32, []int32) { return tokens, targets })); err != nil {
				return err
			}
		}
	}
	return nil
}

// watch returns what looks at a forward of a block's experts.
func (w *routed) watch(block int, e moe.Experts) model.Watch {
	c := &w.blocks[block]
	c.of = make(map[int32][]float64)
	return func(x *model.Exec, b *model.Batch, _, _ tensor.Mem) ([]cost.Count, error) {
		experts, weights, err := moe.DispatchOf(b.Work).Choices(x)
		if err != nil {
			return nil, err
		}
		loads, known := make([]int64, e.Count), len(experts) == e.Top*len(w.tokens)
		for i, k := range experts {
			if k < 0 {
				continue
			}
			loads[k]++
			c.all += weights[i]
			if i%e.Top == 0 {
				c.first += weights[i]
			}
			if known {
				c.add(w.tokens[i/e.Top], int(k), e.Count)
			}
		}
		return nil, w.seen(block, loads)
	}
}

func (c *choices) add(token int32, expert, experts int) {
	if c.of[token] == nil {
		c.of[token] = make([]float64, experts)
	}
	c.of[token][expert]++
	c.assignments++
}

// figure is a mean over the blocks.
type figure struct {
	name  string
	value float64
	unit  string
}

func (w *routed) figures() []figure {
	var all, given, first, n, used float64
	for _, c := range w.blocks {
		if c.all > 0 {
			first += c.first / c.all
			used++
		}
		if c.assignments == 0 {
			continue
		}
		n++
		sums := make([]float64, model.KindOf[moe.Experts](w.stage.Config).Count)
		for _, token := range slices.Sorted(maps.Keys(c.of)) { // sums are the same every time
			share, loads := 0.0, c.of[token]
			for e, x := range loads {
				sums[e] += x
				share += x / c.assignments
			}
			given += share * bits(loads)
		}
		all += bits(sums)
	}
	return []figure{{"entropy", all / n, "bits"}, {"entropy_of_token", given / n, "bits"}, {"first", first / used, "share"}}
}

// bits returns the entropy of a distribution of so many.
func bits(counts []float64) float64 {
	sum, h := 0.0, 0.0
	for _, x := range counts {
		sum += x
	}
	for _, x := range counts {
		if x > 0 {
			h -= x / sum * math.Log2(x/sum)
		}
	}
	return h
}
