package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"

	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// packs parses --pack. most is the largest number of stages.
func packs(flag map[string]int, most int) (map[int]int, error) {
	list := make(map[int]int)
	for _, step := range slices.Sorted(maps.Keys(flag)) {
		n, err := strconv.Atoi(step)
		if stages := flag[step]; err != nil || n < 1 || stages < 1 || stages > most {
			return nil, fmt.Errorf("--pack %s=%d: want STEP=STAGES, a step of at least 1 and 1 to %d stages", step, stages, most)
		}
		list[n] = flag[step]
	}
	return list, nil
}

// within returns an error for steps of --pack that a series does not have.
func within(packs map[int]int, series cost.Series) error {
	first, steps := series[0].Step, stepsIn(series)
	for _, step := range slices.Sorted(maps.Keys(packs)) {
		if step <= first || step >= first+steps {
			return fmt.Errorf("--pack %d=%d: want a step from %d to %d, of the run but its first", step, packs[step], first+1, first+steps-1)
		}
	}
	return nil
}

// simPacking is the effect of packing onto fewer ranks.
type simPacking struct {
	Reference float64     `json:"dense_step_seconds"` // of a step on all stages with the best cuts, before the model first changed
	Packed    []simPacked `json:"packed"`
	MeanRanks float64     `json:"mean_ranks"` // over the seconds of the run
	NodeHours float64     `json:"node_hours_given_back"`
	Least     float64     `json:"throughput_least"` // of all steps since the first packing, relative to the dense model's
	Kept      string      `json:"kept,omitempty"`   // why the last decision on fewer stages packed nothing
}

// simPacked is one packing.
type simPacked struct {
	Step       int     `json:"step"` // first step on fewer stages
	Before     int     `json:"stages_before"`
	Stages     int     `json:"stages"`
	Ranks      int     `json:"ranks"`
	Nodes      int     `json:"nodes"`
	Throughput float64 `json:"throughput"` // relative to the dense model's
}

// packing describes the effect of packing on a run; nil if neither settings nor flags ask for
// packing.
func packing(run study.Run, o study.Options) *simPacking {
	if !o.Config.Packs() && len(o.Pack) == 0 {
		return nil
	}
	p := &simPacking{
		Reference: run.Reference, Packed: []simPacked{}, MeanRanks: run.RankSeconds / run.Seconds,
		NodeHours: run.FreeNodeSeconds() / 3600, Least: run.LeastThroughput(),
	}
	for _, x := range run.Packings() {
		p.Packed = append(p.Packed, simPacked{x.Step, x.Before, x.Stages, x.Ranks, x.Nodes, x.Throughput})
	}
	if kept := run.NotPacked(); kept != nil {
		p.Kept = kept.Explain(o.Config.Repack)
	}
	return p
}

// print writes the effect of packing as text.
func (p *simPacking) print(out io.Writer) {
	if p == nil {
		return
	}
	share := func(x float64) string {
		if x == 0 {
			return ""
		}
		return fmt.Sprintf(", %.1f %% of the dense model's throughput", 100*x)
	}
	for _, x := range p.Packed {
		paragraph(out, "packed", "before step %d: from %d stages onto %d, %d ranks on %s%s", x.Step, x.Before, x.Stages, x.Ranks, record.Counted(x.Nodes, "node"), share(x.Throughput))
	}
	if len(p.Packed) > 0 {
		text := ""
		if p.Least > 0 {
			text = fmt.Sprintf("; throughput never below %.3f of the dense model's, whose step takes %s", p.Least, duration(p.Reference))
		}
		paragraph(out, "ranks", "%.2f in the mean, %.3g node-hours given back%s", p.MeanRanks, p.NodeHours, text)
	}
	if p.Kept != "" {
		paragraph(out, "not packed", "%s", p.Kept)
	}
}
