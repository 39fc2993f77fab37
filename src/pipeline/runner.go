// Package pipeline executes a schedule on this rank: it runs the passes of the rank's layers, and sends
// activations and gradients to other ranks.
//
// In: a model.Stage (the layers that this rank owns), a layout (cuts and schedule), two groups of ranks,
// and the tokens and targets of each microbatch. Out: a Result with losses, counts and a trace; and
// gradients, which stay in the layers.
//
// A step is three calls, in this order: Step, Agree, Update. All ranks of the stages and replicas call
// them together. All leave out Update if the loss or the norm is not finite. After Update, call
// FinishUpdate before anything but Step or Validate reads or moves weights. A Runner is valid for one
// layout and one structure of layers. A move, pruning or freezing needs FinishUpdate, Close and a new
// Runner.
//
// Invariants: losses and gradients have the same bits wherever layers lie. So gradients are added
// in ascending order of microbatches, then of replicas, and norms and losses in the order of layers.
//
// Words: a stage is one rank's place in the pipeline of a replica. The chain of layers is cut into
// virtual stages. Each stage holds one or several of them, its chunks (see partition.Map). A boundary
// is the activations, or their gradient, that pass from one virtual stage to the next.
//
// Others rely on the following, so do not change it alone. Every order of addition decides bits.
// FixedBytes must be the memory that New allocates, because the planner trusts it. Package sim repeats
// what a step does, in the same order. The tags of messages are in package comm. Free to change: the
// buffers, the overlap of messages and work, graphs, and the size of a bucket.
package pipeline

import (
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/cost"
	"dynmo/src/device"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/trace"
)

// Groups are the two groups of ranks that this rank belongs to.
type Groups struct {
	Stages   *comm.Group // all stages of this replica; the rank in the group is the stage
	Replicas *comm.Group // all replicas of this stage; the rank in the group is the replica
}

// Options is how steps are executed.
type Options struct {
	Graphs     bool // passes that make the same kernel calls again are recorded and replayed as device graphs
	Validation int  // microbatches of one call of Validate, over all replicas together; 0: Validate is not called
	// Bucket is the most bytes of gradients that one round of messages sums over replicas, unless a
	// single layer has more. 0 means 1 MiB times the number of replicas.
	Bucket int64
	Sums   schedule.Sums // order and rounding of the sums of gradients over replicas
}

// Runner executes steps of one layout on one stage. New makes its buffers; every step uses them again.
// Only one goroutine may use a Runner.
type Runner struct {
	x        *model.Exec
	s        *model.Stage
	group    *comm.Group // the stages of this replica
	replicas *comm.Group
	options  Options

	schedule    schedule.Schedule
	owners      partition.Owners
	trained     int              // chain position of the first trained layer: gradients do not go further back
	byGradients int              // chain position of the first layer whose training needs gradients of later layers: no I before it
	list        []schedule.Instr // this stage's instructions, with messages
	chunks      []*chunk
	sends       []comm.Request // not yet complete
	graphs      graphs
	mostGraphs  int // the most entries of graphs
	reduce      reducer
	ties        []model.Tie
	tiedRounds  tiedRounds
	tied        tensor.Mem // receives the gradient of a tied matrix that this stage owns and another stage borrows
	validation  validation
	lessons     lessons

	weights            weightRounds
	copies             copies
	pieces             int        // number of pieces of a layer (see model.Config.Pieces)
	norms, normsOnHost tensor.Mem // F64 of each layer (see Layer.SquaredNorm)
	lossLayers         []int      // chain positions of layers with a loss, once for each loss
	losses             tensor.Mem // on the host: F64 by loss of this stage and microbatch
	counts             []cost.Count
	watched            []cost.Count // counts of the stage's Watch in this step
	references         references
	times              []timing     // of passes, instructions and sums of this step
	waits              []waiting    // waits for other replicas during these passes
	passing            bool         // the last of times is a pass that is under way
	spans, instrs      []trace.Span // of passes and sums; of instructions
	event              device.Event // see ready
	lastForward        int          // index in list of the last message of activations; -1: none
	forwarded          func() error // see Forwarded; nil: none
	owned              []tensor.Mem // every buffer, to be freed
	pinned             []tensor.Mem // the same, on the host
}

// stage is this rank's place in the pipeline.
func (r *Runner) stage() int { return r.group.Rank() }

// New returns the runner of a stage, with its buffers. The runner is valid until the layout or the
// structure of the stage's layers (formats, frozen parameters) changes. Before the next New, call
// FinishUpdate and Close. The error names the layout's fault, or the stage whose buffers did not fit.
// Collective over the stages of a replica.
func New(x *model.Exec, l layout.Layout, s *model.Stage, g Groups, o Options) (*Runner, error) {
	sched, m := l.Schedule, l.Map()
	if err := l.Cuts.Check(s.Config.Layers(), m.Virtual(), true); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	most := comm.TagMicrobatches
	if s.Config.Selects(s.Config.Layers()) {
		most = comm.TagIndexes
	}
	if n := m.Chunks * sched.Microbatches; n > most && !sched.Ascending() {
		return nil, fmt.Errorf("pipeline: %d microbatches of all chunks of a stage, want at most %d unless there is one chunk and they ascend", n, most)
	}
	if o.Validation > 0 && m.Chunks > comm.TagChunks {
		return nil, fmt.Errorf("pipeline: %d chunks of a stage, want at most %d for validation", m.Chunks, comm.TagChunks)
	}
	r := &Runner{
		x: x, s: s, group: g.Stages, replicas: g.Replicas, options: o,
		schedule: sched, owners: l.Owners(),
		graphs: graphs{}, ties: s.Config.Ties(), lossLayers: s.Config.Losses(),
	}
	x.Replicas, x.Exchanging = g.Replicas, r.exchanging
	if err := r.agreeTrained(); err != nil {
		return nil, fmt.Errorf("pipeline: %w", err)
	}
	first := m.Virtual()
	if r.trained < len(r.owners) {
		first = l.Cuts.Stage(r.trained)
	}
	for _, layer := range s.Layers {
		layer.SetRecompute(slices.Contains(l.Twice, layer.ID))
	}
	r.list = slices.DeleteFunc(sched.SkipFrozen(first).WithMessages(r.stage()), func(in schedule.Instr) bool { return r.carriesNothing(l.Cuts, in) })
	r.lastForward = lastForward(r.list)
	plan, peaks := planner{r: r}, sched.Peaks()
	mine := 0
	for _, id := range r.lossLayers {
		if r.owners[id] == r.stage() {
			mine++
		}
	}
	r.losses = plan.OnHost(8 * int64(mine*sched.Microbatches))
	for i, losses := 0, r.losses; i < m.Chunks; i++ {
		v := m.Place(r.stage(), i)
		lo, hi := l.Cuts.Range(v)
		c := plan.chunk(v, s.Segment(lo, hi), countBuffers(m, v, peaks[v]))
		r.mostGraphs += shapesOfAPass * 4 * (hi - lo) * sched.Microbatches
		losses = plan.readings(c, losses)
		r.chunks = append(r.chunks, c)
	}
	if o.Validation > 0 {
		r.validation = plan.validation(mine)
	}
	r.lessons = plan.lessons()
	r.references.memory.Device = x.Device
	r.reduce = plan.reducer()
	r.weights, r.copies, r.pieces = plan.weightRounds(), listCopies(s), s.Config.CountPieces()
	norms := int64(0)
	for _, l := range s.Layers {
		norms += normBytes(l, g.Replicas.Rank())
	}
	r.norms, r.normsOnHost = plan.OnDevice(norms), plan.OnHost(norms)
	r.tied = plan.OnDevice(r.tiedReceiveBytes())
	if plan.err != nil {
		r.Close()
		return nil, fmt.Errorf("pipeline: buffers of stage %d: %w", r.stage(), plan.err)
	}
	return r, nil
}

// lastForward returns the index of the last message of activations in a list; -1: none.
func lastForward(list []schedule.Instr) int {
	last := -1
	for i, in := range list {
		if in.Op == schedule.SendForward {
			last = i
		}
	}
	return last
}

// agreeTrained finds the first layer of the chain that is trained, and the first that is trained
// by gradients of later layers. Collective over the stages.
func (r *Runner) agreeTrained() error {
	first := []int64{int64(len(r.owners)), int64(len(r.owners))}
	for i, trains := range []func(*model.Layer) bool{(*model.Layer).Trains, (*model.Layer).TrainsByGradients} {
		if at := slices.IndexFunc(r.s.Layers, trains); at >= 0 {
			first[i] = int64(r.s.Layers[at].ID)
		}
	}
	err := comm.Allreduce(r.group, first, func(a, b int64) int64 { return min(a, b) })
	r.trained, r.byGradients = int(first[0]), int(first[1])
	return err
}

// carriesNothing reports whether an instruction sends or receives a gradient that trains no layer.
func (r *Runner) carriesNothing(cuts partition.Partition, in schedule.Instr) bool {
	v := r.schedule.Map.Place(r.stage(), in.Chunk) // that gradients leave
	switch in.Op {
	case schedule.RecvBackward:
		v++
	case schedule.SendBackward:
	default:
		return false
	}
	first, _ := cuts.Range(v)
	return first <= r.byGradients
}

// Close frees all buffers and the recorded graphs.
func (r *Runner) Close() {
	r.graphs.close()
	for _, m := range r.owned {
		r.x.Device.Free(m)
	}
	for _, m := range r.pinned {
		r.x.Device.FreeHost(m)
	}
	r.owned, r.pinned, r.chunks, r.graphs = nil, nil, nil, nil
}

// planner allocates until the first error.
type planner struct {
	r   *Runner
	err error
}

// OnDevice returns memory of the device.
func (p *planner) OnDevice(bytes int64) tensor.Mem {
	return p.from(p.r.x.Device.Alloc, &p.r.owned, bytes)
}

// OnHost returns memory of the host.
func (p *planner) OnHost(bytes int64) tensor.Mem {
	return p.from(p.r.x.Device.AllocHost, &p.r.pinned, bytes)
}

func (p *planner) from(alloc func(int64) (tensor.Mem, error), owned *[]tensor.Mem, bytes int64) tensor.Mem {
	if p.err != nil {
		return tensor.Mem{}
	}
	m, err := alloc(bytes)
	if err != nil {
		p.err = err
		return tensor.Mem{}
	}
	if !m.IsZero() {
		*owned = append(*owned, m)
	}
	return m
}
