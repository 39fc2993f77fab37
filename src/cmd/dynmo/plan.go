package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/comm/nccl"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/trace"
)

// planCommand returns the command that plans a step.
func planCommand() *cobra.Command {
	var w whatIf
	var step int
	var csv target
	var meshes meshFlags
	c := &cobra.Command{
		Use:   "plan CONFIG --costs FILE",
		Short: "Where layers should live and what a step will take: cuts, bytes, schedule, idle time by cause",
		Long: `Where layers should live and what a step will take, on measured costs. Nothing
is trained. Cuts are the exact partition, improved on the simulated step; with
balance.kind = uniform, param, regex or layout they are those.

The bubble ratio is the share of the stages' time in which they wait, and has
four parts: inherent to the schedule, were all stages loaded equally; by
imbalance, below 0 where unequal stages wait less; for memory, by a limit on
microbatches in flight; for communication. The paper's equation (1) stands
beside it where its assumptions hold: an even number of equal stages and as many
microbatches. The last table has other schedules, each at its own best cuts. A step
ends with the gradient sum over replicas; bounds and ratios are of its makespan.

The second table is the memory that a rank of every stage allocates. "moments" are with
master weights in bfloat16, "activations" of the microbatches in flight, "recomputed" of
model.recompute. "boundary" and "sums" are buffers for messages and gradients of other ranks.
"copies" is the part of "all" that spare places for copies of pieces of layers take: weights,
sums of gradients in 64-bit fixed point, and moments, since an owner may move to any place.
"NCCL est." is what NCCL allocates beside all this, estimated.

The advice at the end names settings to add, with their gain and the memory that they cost.
It begins with schedule.kind = auto, blocks in halves and slices of the head, alone and
together, where they are faster. Then come other schedules and balancers: none that
were tried need less time without more memory. "without" are settings of --set that would
then have no effect. "estimated" are finer layers, whose costs are estimated from those
of the whole ones: measure them with dynmo profile and these settings before you use them.

With replicas, and a network of several ranks on a node, mesh.order is compared: the
step in both orders, and what packing onto half of the stages would free and take.

With --meshes all stages x replicas of --gpus ranks are planned for the same --batch
of sequences, each with its best cuts, schedule and grain. The five with the shortest
steps are told, with what each costs beside its work and with the settings that plan
it. "to work" is the step over its work, shared evenly. Microbatches keep their size:
meshes that do not divide the batch are left out, and so are those that do not fit
balance.memory_limit_bytes. Without that limit, costs estimated for a GPU take its memory.

Every time is simulated (clock=sim) on costs of the clock that the table names.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := csv.check(); err != nil {
				return err
			}
			series, o, err := w.read(args[0], question{"plan", []string{"none"}, []string{"balance.every", "run.trace_steps"}})
			if err != nil {
				return err
			}
			table, err := at(series.Costs(), step)
			if err != nil {
				return usageError{err}
			}
			if err := meshes.check(c, o.Config.Parallel); err != nil {
				return usageError{err}
			}
			if meshes.on {
				a, err := w.meshes(table, o, meshes, barOf(c).Show)
				if err != nil {
					return usageError{err}
				}
				return tellAnswer(c, a, w.json)
			}
			best, err := study.Plan(table, o)
			if err != nil {
				return usageError{err}
			}
			if csv.path != "" {
				err := csv.write(c, func(out io.Writer) error { return schedule.WriteCSV(out, best.Schedule) })
				if err != nil || csv.standard() {
					return err
				}
			}
			a := w.planned(table, best, o, barOf(c).Show)
			if a.Orders, err = study.Orders(table, o); err != nil {
				return usageError{err}
			}
			a.Network, a.Sums = w.assumed, study.Sums(table, best.Layout, o)
			return tellAnswer(c, a, w.json)
		},
	}
	w.flags(c)
	meshes.flags(c)
	c.Flags().IntVar(&step, "step", -1, "step whose costs to plan for; -1 is the last")
	csv.flags(c, "csv", "", "write the schedule as torchtitan and schedule.kind = file read it; - is standard output, in place of the answer")
	return c
}

// planAnswer is the output of dynmo plan. Times are in seconds.
type planAnswer struct {
	Clock      string              `json:"clock"` // sim
	Parameters int64               `json:"parameters"`
	Active     int64               `json:"active_parameters"` // parameters that one token passes
	Flops      float64             `json:"step_flops"`        // of all replicas; no token leaves early or skips a block
	Costs      string              `json:"costs_clock"`
	Network    string              `json:"assumed_network,omitempty"`    // nodes of the GPU of the costs, if no network was named
	Asked      string              `json:"schedule_kind"`                // of the settings
	Schedule   string              `json:"schedule"`                     // chosen, if the kind is auto or list
	Cuts       partition.Partition `json:"cuts"`                         // over virtual stages
	Layout     string              `json:"layout,omitempty"`             // in Megatron-LM's notation, if it can express the cuts
	Twice      []int               `json:"computed_twice,omitempty"`     // layers, if model.recompute plans them
	TwiceGap   float64             `json:"computed_twice_gap,omitempty"` // largest share by which their seconds exceed the least for these cuts
	Stages     []planStage         `json:"stages"`
	Step       float64             `json:"step_seconds"`
	Exposed    float64             `json:"allreduce_seconds"` // of the step; not hidden by work
	Makespan   float64             `json:"makespan"`
	Bound      float64             `json:"lower_bound"`
	Bottleneck float64             `json:"bottleneck"`
	Optimum    float64             `json:"optimum"`
	Bubble     float64             `json:"bubble_ratio"`
	Idle       trace.Idle          `json:"idle_seconds"`                    // means over the stages
	Head       float64             `json:"head_share"`                      // of the layers' seconds
	Spread     float64             `json:"microbatch_deviation,omitempty"`  // of the layer whose microbatches differ most, relative
	Paper      *float64            `json:"paper_bubble_ratio,omitempty"`    // the paper's equation (1), if its assumptions hold
	Nccl       *nccl.Needs         `json:"nccl_rank_estimated,omitempty"`   // with NCCL: most bytes of a rank, by formula
	Sums       *study.SumTraffic   `json:"gradient_sums,omitempty"`         // of several replicas
	Snapshot   int64               `json:"checkpoint_host_bytes,omitempty"` // most memory of any rank for the copy of a checkpoint
	Orders     []study.Order       `json:"mesh_orders,omitempty"`           // both orders, if replicas and nodes of several ranks make a difference
	Others     []planOther         `json:"schedules"`
	Advice     []study.Advice      `json:"advice"`
}

// orderWords describes the cost of an order of the mesh.
func orderWords(o study.Order) string {
	near := map[layout.RankOrder]string{layout.StageMajor: "the replicas of a stage", layout.ReplicaMajor: "the stages of a pipeline"}
	text := fmt.Sprintf("%s, %s are neighbours: a step of %s", o.Order, near[o.Order], duration(o.Step))
	if o.Stages > 0 {
		text += fmt.Sprintf("; packing onto %d stages frees %d of %d nodes and moves layers for %s", o.Stages, o.Free, o.Nodes, duration(o.Moving))
	}
	return text
}

// planOther is another schedule with its own best cuts.
type planOther struct {
	Schedule string  `json:"schedule"`
	Step     float64 `json:"step_seconds"`
	Exposed  float64 `json:"allreduce_seconds"`
	Bubble   float64 `json:"bubble_ratio"`
	ToBound  float64 `json:"to_bound"` // lower bound over makespan
	Chunks   int     `json:"chunks"`
	InFlight int     `json:"in_flight"` // most microbatches of a chunk on any stage
	Bytes    int64   `json:"bytes"`     // of the stage that needs most
}

// adviceWords states the gain of other settings and its price.
func adviceWords(a study.Advice) string {
	return fmt.Sprintf("%s: %s, %s", setsWithout(a.Sets, a.Without),
		change(a.Faster, "faster", "slower", "as fast"), change(a.Less, "less memory", "more memory", "as much memory"))
}

// setsWithout formats settings to add, and settings to drop.
func setsWithout(sets, without []string) string {
	text := "--set " + strings.Join(sets, " --set ")
	if len(without) > 0 {
		text += ", without --set " + strings.Join(without, " --set ")
	}
	return text
}

// change describes a relative change: "4.6 % faster".
func change(share float64, better, worse, same string) string {
	word := better
	if share < 0 {
		word, share = worse, -share
	}
	switch percent := 100 * share; {
	case percent < 0.5:
		return same
	case percent < 9.95:
		return fmt.Sprintf("%.1f %% %s", percent, word)
	default:
		return fmt.Sprintf("%.0f %% %s", percent, word)
	}
}

// planned describes a plan. It calls show with the progress.
func (w *whatIf) planned(t cost.Table, best search.Plan, o study.Options, show func(done, total int64)) planAnswer {
	a := planAnswer{
		Clock: "sim", Costs: t.Source(), Asked: o.Config.Schedule.Kind, Schedule: string(best.Schedule.Kind), Cuts: best.Cuts, Twice: best.Twice, TwiceGap: best.TwiceGap,
		Step: best.Seconds, Exposed: best.Exposed, Makespan: best.Step.Makespan(), Bound: best.LowerBound, Bottleneck: best.Bottleneck, Optimum: best.Optimum,
		Bubble: best.Step.BubbleRatio(), Idle: best.Idle, Paper: paperBubble(best, o),
		Head:   study.HeadShare(t, o.Config.Model.HeadShards),
		Others: []planOther{}, Advice: []study.Advice{}, // not null in JSON
	}
	for l := range t.Layers {
		a.Spread = max(a.Spread, t.Spread(l))
	}
	c := o.Config
	shape := model.FromConfig(c)
	tokens := float64(c.Model.Sequence) * float64(c.Parallel.MicrobatchSize) * float64(c.Parallel.Microbatches) * float64(c.Parallel.Replicas)
	a.Parameters, a.Active, a.Flops = shape.Parameters(), shape.Active(), shape.Flops()*tokens
	if notation, err := partition.FormatLayout(best.Cuts, c.Model.Blocks, c.PerBlock(), c.Model.HeadShards); err == nil {
		a.Layout = notation
	}
	m, spare := best.Schedule.Map, best.SpareBytes(c)
	for stage := range m.Stages {
		s := planStage{Layers: m.Owners(best.Cuts).Layers(stage), Bytes: best.Bytes[stage], Memory: best.Memory[stage], Copies: spare[stage]}
		for chunk := range m.Chunks {
			v := m.Place(stage, chunk)
			s.Forward += best.Costs[v].Forward
			s.BackwardInput += best.Costs[v].Input
			s.BackwardWeight += best.Costs[v].Weight
			s.InFlight = append(s.InFlight, best.InFlight[v])
		}
		if best.Caps != nil {
			s.Cap = best.Caps[stage]
		}
		a.Stages = append(a.Stages, s)
	}
	a.Nccl, a.Snapshot = ncclOf(o), snapshotBytes(c, best)
	half := func(first int64) func(done, total int64) { // the trials are the first half of the work, the advice the second
		return func(done, total int64) { show(first*total+done, 2*total) }
	}
	tried := study.Trials(t, o, half(0))
	for _, other := range tried {
		if !other.Config.Balance.Moves() {
			continue
		}
		a.Others = append(a.Others, planOther{
			Schedule: other.Config.Schedule.Kind, Step: other.Seconds, Exposed: other.Exposed, Bubble: other.Step.BubbleRatio(),
			ToBound: other.Step.Makespan() / other.LowerBound,
			Chunks:  other.Schedule.Map.Chunks, InFlight: slices.Max(other.Schedule.InFlight()), Bytes: slices.Max(other.Bytes),
		})
	}
	for _, b := range study.Advise(t, o, best, tried, half(1)) {
		b.Without = w.idle(b.Config)
		a.Advice = append(a.Advice, b)
	}
	return a
}

// idle returns the settings of --set that have no effect beside others.
func (w *whatIf) idle(c config.Config) []string {
	names := []string{}
	for _, set := range w.sets {
		name, _, _ := strings.Cut(set, "=")
		if name = strings.TrimSpace(name); c.CheckSets("plan", []string{set}, []string{"none"}) != nil && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// print writes the answer for people.
func (a planAnswer) print(out io.Writer) error {
	header := []string{"stage", "layers", "forward", "backward-input", "backward-weight", "in flight", "bytes"}
	var rows [][]string
	for stage, s := range a.Stages {
		flying := strings.ReplaceAll(strings.Trim(fmt.Sprint(s.InFlight), "[]"), " ", " + ")
		if s.Cap > 0 {
			flying += fmt.Sprintf(" (cap %d)", s.Cap)
		}
		rows = append(rows, []string{
			fmt.Sprint(stage), ranges(s.Layers), duration(s.Forward), duration(s.BackwardInput),
			duration(s.BackwardWeight), flying, megabytes(s.Bytes),
		})
	}
	if err := record.Table(out, header, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if err := a.printMemory(out); err != nil {
		return err
	}
	fmt.Fprintln(out)
	line := func(name, format string, values ...any) { paragraph(out, name, format, values...) }
	parameters := fmt.Sprintf("%d parameters", a.Parameters)
	if a.Active < a.Parameters {
		parameters += fmt.Sprintf(", a token meets %d", a.Active)
	}
	line("model", "%s; %.3g FLOP in a step of all replicas", parameters, a.Flops)
	if a.Layout != "" {
		line("layout", "%s", a.Layout)
	}
	if a.Twice != nil {
		line("twice", "%s", a.twice())
	}
	if a.Asked == a.Schedule {
		line("schedule", "%s", a.Schedule)
	} else {
		line("schedule", "%s, chosen by %s", a.Schedule, a.Asked)
	}
	line("step", "%s  (clock=sim, on costs of clock=%s)", duration(a.Step), a.Costs)
	if a.Network != "" {
		line("network", "%s", assumedNetwork(a.Network))
	}
	if a.Exposed > 0 {
		line("exposed", "%s to sum gradients over the replicas, which no work hides; makespan %s", duration(a.Exposed), duration(a.Makespan))
		line("lower bound", "%s  (the makespan is %s times that)", duration(a.Bound), ratio(a.Makespan/a.Bound))
	} else {
		line("lower bound", "%s  (the step takes %s times that)", duration(a.Bound), ratio(a.Makespan/a.Bound))
	}
	line("bottleneck", "%s per microbatch; optimum %s", duration(a.Bottleneck), duration(a.Optimum))
	if a.Paper != nil {
		line("bubble ratio", "%s  (the paper's equation (1): %s)", ratio(a.Bubble), ratio(*a.Paper))
	} else {
		line("bubble ratio", "%s", ratio(a.Bubble))
	}
	line("idle by cause", "%s", idleWords(a.Idle))
	line("head", "%.1f %% of the layers' seconds", 100*a.Head)
	if a.Spread > 0 {
		line("microbatches", "differ, in the layer where they do most, by a standard deviation of %.1f %%", 100*a.Spread)
	}
	if s := a.Sums; s != nil {
		nodes := func(bytes int64) string {
			if s.AddBetween+s.BackBetween == 0 {
				return ""
			}
			return fmt.Sprintf(" (%s to other nodes)", megabytes(bytes))
		}
		line("gradient sums", "a rank sends at most %s to add gradients%s and %s of sums back%s, with comm.sum = %s and comm.sum_group = %d",
			megabytes(s.Add), nodes(s.AddBetween), megabytes(s.Back), nodes(s.BackBetween), s.Sum, s.Group)
	}
	if a.Nccl != nil {
		line("NCCL", "%v (estimated)", a.Nccl)
	}
	if a.Snapshot > 0 {
		line("checkpoint", "a rank copies up to %s in host memory", megabytes(a.Snapshot))
	}
	for i, order := range a.Orders {
		line([]string{"mesh.order", "or"}[i], "%s", orderWords(order))
	}
	fmt.Fprintln(out)
	rows = nil
	for _, o := range a.Others {
		flying := fmt.Sprint(o.InFlight)
		if o.Chunks > 1 {
			flying += " of a chunk"
		}
		rows = append(rows, []string{o.Schedule, duration(o.Step), ratio(o.Bubble), ratio(o.ToBound), flying, megabytes(o.Bytes)})
	}
	if err := record.Table(out, []string{"schedule", "step", "bubble ratio", "to bound", "in flight", "most bytes"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	name := "advice"
	switch {
	case len(a.Advice) == 0:
		line(name, "nothing found: no other schedule, balancer or finer layers are faster or need less memory")
	case a.Advice[0].Faster <= 0:
		line(name, "nothing that was tried is faster; for less memory")
		name = "or"
	}
	for _, advice := range a.Advice {
		if advice.MadeUp { // a command with dynmo profile
			line("estimated", "profile it first: %s", adviceWords(advice))
			continue
		}
		line(name, "%s", adviceWords(advice))
		name = "or"
	}
	return nil
}
