package verdict

import (
	"fmt"
	"slices"
	"strings"

	"dynmo/src/config"
	"dynmo/src/plan"
	"dynmo/src/record"
)

// decisions sums up the outcomes of a run's decisions, from the events of balancing.
type decisions struct {
	count    int
	kept     plan.Kept // reason of the decision with the largest gain
	gain     plan.Gain // the largest expected gain
	full     string    // why no cuts fit into memory; "" if some do
	refused  bool      // whether some rank had no memory for a move
	reorders int       // decisions that changed only the schedule
	unpacked string    // why the last attempt to pack packed nothing; "": it packed, or there was none
}

// add takes an event.
func (d *decisions) add(e record.Event) {
	d.refused = d.refused || e.Kind == record.Migrate && e.Refused() != ""
	if e.Kind == record.Repack {
		d.unpacked = ""
	}
	if e.Kind != record.Balance {
		return
	}
	kept, _ := e.Detail["kept"].(string)
	if why, ok := strings.CutPrefix(kept, record.NotPacked); ok {
		d.unpacked = why
		return
	}
	d.count++
	switch kept := plan.Kept(kept); kept {
	case "":
		d.reorders++
	case plan.KeptBest, plan.KeptUncertain, plan.KeptPrice:
		expected, _ := e.Detail["gain"].(float64)
		if d.kept == "" || expected > d.gain.Expected {
			least, _ := e.Detail["gain_least"].(float64)
			d.kept, d.gain = kept, plan.Gain{Expected: expected, Least: least}
		}
	case plan.KeptUndone, plan.KeptRefused:
	default:
		d.full = string(kept)
	}
}

// Stayed returns sentences that say why no layer moved in a run, and which setting would help. It
// returns "" if layers moved or there is one stage. The reason is that of the decision with the
// largest expected gain.
func (t *Tally) Stayed(c config.Config) string {
	d := t.decisions
	if t.moved || t.steps == 0 || c.Parallel.Stages == 1 {
		return ""
	}
	gain := fmt.Sprintf("%.1f %%", 100*d.gain.Expected)
	switch {
	case !c.Balance.Moves():
		return fmt.Sprintf("balance.kind = %s never moves layers. Use balance.kind = partition", c.Balance.Kind)
	case d.full != "":
		return fmt.Sprintf("memory allows no other placement: %s. Raise balance.memory_limit_bytes or use more stages", d.full)
	case d.refused:
		return "a rank had no memory for the move. Lower balance.memory_limit_bytes, so that such a move is not tried"
	case d.count == 0:
		return t.undecided(c)
	case d.kept == plan.KeptUncertain:
		return fmt.Sprintf("the best move was predicted to save %s of a step, uncertain by %.1f %%. A longer run or a quieter host measures costs better",
			gain, 100*(d.gain.Expected-d.gain.Least))
	case d.kept == plan.KeptPrice:
		return fmt.Sprintf("the best move was predicted to save %s of a step, less than its price. A faster network between the ranks would help", gain)
	}
	why := "no move was predicted to pay"
	if d.gain.Expected > 0 {
		why = fmt.Sprintf("the best move was predicted to save %s of a step, below the threshold of %.0f %%", gain, 100*plan.WorthMoving)
	}
	return why + t.coarse(c)
}

// undecided returns the reason why a run made no decision.
func (t *Tally) undecided(c config.Config) string {
	if c.Balance.Every != "auto" {
		return fmt.Sprintf("nothing was decided in the %s of the run: balance.every = %s. Use a smaller balance.every or more steps", record.Counted(t.steps, "step"), c.Balance.Every)
	}
	if t.steps <= 2 {
		return fmt.Sprintf("the run has %s: the first decision follows the second step. Use more steps", record.Counted(t.steps, "step"))
	}
	lasting := func(p record.Phase) bool { return p.Steps > 2 } // with one step, costs are known only if there are many microbatches
	if c.Parallel.Microbatches < 4 && !slices.ContainsFunc(t.series, lasting) {
		return "balance.every = auto did not know the costs: the model changed after every two steps or sooner. Use parallel.microbatches of 4 or more"
	}
	return fmt.Sprintf("the best move would have saved at most %.0f %% of a step", 100*plan.WorthMoving) + t.coarse(c)
}

// coarse returns why layers cannot be divided better, from the costs of the last phase, and which
// setting would help. It returns "" if that is not known, or if the most loaded stage has layers to
// give away.
func (t *Tally) coarse(c config.Config) string {
	if len(t.series) == 0 || t.series[len(t.series)-1].Run == nil {
		return ""
	}
	p := t.series[len(t.series)-1]
	stages, perBlock := p.Run.Layout.Stages(), c.PerBlock()
	if p.Run.Layout.Map().Chunks > 1 {
		return ""
	}
	if units := c.Model.Blocks * perBlock; units <= stages && c.Layers() <= 1+units+c.Model.HeadShards { // other kinds of layers do not add units
		what := "blocks"
		if perBlock > 1 {
			what = "parts of blocks"
		}
		return fmt.Sprintf(". %d %s on %d stages leave no choice: any move puts two on one stage. Use %s", units, what, stages, strings.Join(finer(c), " or "))
	}
	first, last := slowest(p)
	if last-first != 1 {
		return ""
	}
	head := len(p.Layers) - c.Model.HeadShards
	switch {
	case first >= head:
		return fmt.Sprintf(". The slowest stage holds one layer, which cannot be divided: a slice of the head. Use a model.head_shards above %d", c.Model.HeadShards)
	case first > 0:
		return fmt.Sprintf(". The slowest stage holds one layer, which cannot be divided: layer %d. Use %s", first, strings.Join(finer(c), " or "))
	}
	return ""
}

// finer lists the settings that give a stage more layers to choose from.
func finer(c config.Config) []string {
	list := []string{"fewer stages"}
	if c.Model.Grain == "block" {
		list = append(list, "model.grain = half")
	}
	return list
}

// slowest returns the layers [first, last) of the stage of a phase whose layers cost the most.
func slowest(p record.Phase) (first, last int) {
	cuts, most := p.Run.Layout.Cuts, -1.0
	for stage := range cuts.Stages() {
		sum := 0.0
		for _, l := range p.Layers[cuts[stage]:cuts[stage+1]] {
			sum += l.Seconds()
		}
		if sum > most {
			most, first, last = sum, cuts[stage], cuts[stage+1]
		}
	}
	return first, last
}
