package nodebench

import (
	"fmt"
	"io"
	"text/tabwriter"

	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Bubble is what is known exactly: a schedule on stages that cost the same, f =
// i = w = 1 for a microbatch of a whole stage, without messages.
type Bubble struct {
	Kind                         schedule.Kind
	Chunks, Stages, Microbatches int
	Idle                         float64 // the most that a stage is idle between its first and its last instruction
	Formula                      float64 // what that should be
	Makespan                     float64 // from the first start to the last end over all stages, as where a gradient norm ends the step
	Ratio                        float64 // bubble ratio of the makespan
}

// perStage is what the formulas give: the idle time of the first stage, from
// its first F to its last W, with p stages and f = i = w = 1 of a whole stage.
// GPipe, 1F1B: (p-1)·(f+i+w); interleaved divides by the chunks (Narayanan et
// al. 2021); zb-h1: (p-1)·(f+i-w); zb-h2: (p-1)·(f+i-2w); zb-v: 0 (Qi et al.
// 2024).
var perStage = []struct {
	kind   schedule.Kind
	chunks int
	idle   float64 // over p-1
}{
	{schedule.KindGPipe, 1, 3}, {schedule.Kind1F1B, 1, 3}, {schedule.KindInterleaved, 2, 1.5},
	{schedule.KindZBH1, 1, 1}, {schedule.KindZBH2, 1, 0}, {schedule.KindZBV, 2, 0},
}

// Bubbles simulates the schedules that follow from numbers alone, on 8 stages
// with 24 microbatches and on 16 with 48.
func Bubbles() ([]Bubble, error) {
	var list []Bubble
	for _, stages := range []int{8, 16} {
		for _, k := range perStage {
			m := 3 * stages
			s, err := schedule.New(k.kind, stages, k.chunks, m)
			if err != nil {
				return nil, err
			}
			costs := make([]cost.Stage, s.Map.Virtual())
			for v := range costs {
				costs[v] = cost.Stage{Forward: 1, Input: 1, Weight: 1}.Scale(1 / float64(k.chunks))
			}
			r := sim.Run(sim.Step{Schedule: s, Costs: costs})
			b := Bubble{
				Kind: k.kind, Chunks: k.chunks, Stages: stages, Microbatches: m,
				Formula: float64(stages-1) * k.idle, Makespan: r.Makespan(), Ratio: r.BubbleRatio(),
			}
			for stage, x := range r.Stage {
				b.Idle = max(b.Idle, x.Seconds()-r.Busy[stage])
			}
			list = append(list, b)
		}
	}
	return list, nil
}

// results returns the figures of a bubble. Idle time that is not exactly what
// the formula gives is wrong.
func (b Bubble) results() []Result {
	wrong := 0
	if b.Idle != b.Formula {
		wrong = 1
	}
	name := fmt.Sprintf("schedule/%s_p%d_m%d_", b.Kind, b.Stages, b.Microbatches)
	return []Result{
		{Name: name + "idle", Value: b.Idle, Unit: "forwards", OK: wrong == 0, Clock: "sim", Wrong: wrong},
		{Name: name + "makespan", Value: b.Makespan, Unit: "forwards", OK: true, Clock: "sim"},
		{Name: name + "bubble", Value: b.Ratio, Unit: "ratio", OK: true, Clock: "sim"},
	}
}

// WriteBubbles writes them for people.
func WriteBubbles(w io.Writer, list []Bubble) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "schedule\tstages\tmicrobatches\tidle per stage\tformula\tmakespan\tbubble ratio\tverdict")
	for _, b := range list {
		verdict := "EXACT"
		if b.Idle != b.Formula {
			verdict = "INVALID"
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%g\t%g\t%g\t%.4f\t%s\n",
			b.Kind, b.Stages, b.Microbatches, b.Idle, b.Formula, b.Makespan, b.Ratio, verdict)
	}
	return t.Flush()
}

// ScheduleResults returns all figures.
func ScheduleResults(bubbles []Bubble, unequal []Unequal) []Result {
	var list []Result
	for _, b := range bubbles {
		list = append(list, b.results()...)
	}
	for _, u := range unequal {
		list = append(list, u.results()...)
	}
	return list
}
