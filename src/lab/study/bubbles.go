package study

import (
	"dynmo/src/cost"
	"dynmo/src/schedule"
	"dynmo/src/sim"
)

// Bubble is the idle time of a schedule where formulas give it exactly: on stages
// that cost the same, f = i = w = 1 for a microbatch of a whole stage, without
// messages.
type Bubble struct {
	Kind                         schedule.Kind
	Chunks, Stages, Microbatches int
	Idle                         float64 // the most that a stage is idle between its first and its last instruction
	Formula                      float64 // what that should be
	Makespan                     float64 // from the first start to the last end over all stages, as where a gradient norm ends the step
	Ratio                        float64 // bubble ratio of the makespan
}

// perStage has the formulas for the idle time of the first stage, from its first F to its last W,
// with p stages and f = i = w = 1 of a whole stage. GPipe, 1F1B: (p-1)·(f+i+w); interleaved divides
// by the chunks (Narayanan et al. 2021); zb-h1: (p-1)·(f+i-w); zb-h2: (p-1)·(f+i-2w); zb-v: 0 (Qi
// et al. 2024); zb-interleaved as zb-h1, over the chunks.
var perStage = []struct {
	kind   schedule.Kind
	chunks int
	idle   float64 // over p-1
}{
	{schedule.KindGPipe, 1, 3}, {schedule.Kind1F1B, 1, 3}, {schedule.KindInterleaved, 2, 1.5},
	{schedule.KindZBH1, 1, 1}, {schedule.KindZBH2, 1, 0}, {schedule.KindZBV, 2, 0},
	{schedule.KindZBInterleaved, 2, 0.5},
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

// PaperBubble returns the paper's equation (1) for the bubble ratio of a static model: with g =
// P²/2 - P,
//
//	(3g + 6P - 2g/P - 8)·T_C + 2g·T_B
//	──────────────────────────────────────────────
//	(3P² - 2P)·T_C + (2P² - 2P)·T_B + P²·T_F
//
// p is P, the workers of the pipeline. forward and backward are T_F and T_B, the seconds of a
// microbatch on all stages together, divided by P. message is T_C, the seconds of a message to a
// neighbour that nothing hides.
//
// The paper defines S, the stages, and B, the microbatches, and uses neither: its ratio does not
// depend on microbatches, though more of them shrink every bubble. It holds where the paper counts
// its gaps: an "almost zero-bubble" pipeline in which two copies of the model run against each
// other. The stages are equal, one for each of an even number of workers. There are as many
// microbatches as workers, as far as the paper says.
//
// Departs: on a single worker it returns 0, where the equation is negative.
func PaperBubble(p int, forward, backward, message float64) float64 {
	if p < 2 {
		return 0
	}
	n := float64(p)
	gaps := n*n/2 - n
	idle := (3*gaps+6*n-2*gaps/n-8)*message + 2*gaps*backward
	span := (3*n*n-2*n)*message + (2*n*n-2*n)*backward + n*n*forward
	if span == 0 {
		return 0
	}
	return idle / span
}
