package elastic

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/layout"
)

// Mode is what becomes of ranks that hold no layer any more.
type Mode string

// Modes, as elastic.release has them.
const (
	Park    Mode = "park"    // they wait for the end of the run
	exit    Mode = "exit"    // they end
	Slurm   Mode = "slurm"   // they end, and Slurm takes their nodes back
	Restart Mode = "restart" // none does: the run ends, to be started again on fewer nodes
)

// Terms are what becomes of ranks that hold no layer, the same on every rank.
type Terms struct {
	Mode  Mode
	Nodes []string // by rank of the launched world
	Batch string   // the node of the batch script, which Slurm does not take back; "" if there is none
	Job   Job      // that gives nodes back
	Unmet string   // why the mode is not that of the settings; "" if it is
}

// Ends reports whether ranks without layers end before the run does.
func (t Terms) Ends() bool { return t.Mode == exit || t.Mode == Slurm }

// NodesOf returns the nodes of some ranks, each once, in order of the ranks.
func (t Terms) NodesOf(ranks []int) []string {
	var list []string
	for _, rank := range slices.Sorted(slices.Values(ranks)) {
		if node := t.Nodes[rank]; !slices.Contains(list, node) {
			list = append(list, node)
		}
	}
	return list
}

// Kept returns the nodes that a job keeps for some of its ranks: theirs, and that of the
// batch script.
func (t Terms) Kept(ranks []int) []string {
	nodes := t.NodesOf(ranks)
	if t.Batch != "" && !slices.Contains(nodes, t.Batch) {
		nodes = append(nodes, t.Batch)
	}
	return nodes
}

// Parking returns the terms under which ranks without layers wait for the end.
func Parking(base *comm.Group) Terms {
	return Terms{Mode: Park, Nodes: base.Hosts()}
}

// Here is what a rank finds where it runs.
type Here struct {
	Getenv   func(string) string
	CanLeave error // why the launcher cannot be told that this rank leaves; nil if it can
}

// place is what a rank tells the others of where it runs.
type place struct{ Node, CanLeave string }

// Agree returns the terms of settings, or parking where something that they need is missing.
// Rank 0 looks, and asks Slurm where that takes part. Collective over the launched world.
func Agree(base *comm.Group, s config.Elastic, here Here) (Terms, error) {
	t := Parking(base)
	if Mode(s.Release) == Park {
		return t, nil
	}
	mine := place{Node: here.Getenv("SLURMD_NODENAME")}
	if here.CanLeave != nil {
		mine.CanLeave = here.CanLeave.Error()
	}
	text, err := json.Marshal(mine)
	if err != nil {
		return t, fmt.Errorf("elastic: %w", err)
	}
	all, err := base.Allgather(text)
	if err != nil {
		return t, fmt.Errorf("elastic: %w", err)
	}
	if base.Rank() == 0 {
		places := make([]place, len(all))
		for rank, b := range all {
			if err := json.Unmarshal(b, &places[rank]); err != nil {
				return t, fmt.Errorf("elastic: %w", err)
			}
		}
		if text, err = json.Marshal(t.settle(s, places, here.Getenv)); err != nil {
			return t, fmt.Errorf("elastic: %w", err)
		}
	}
	if text, err = base.Bcast(0, text); err != nil {
		return t, fmt.Errorf("elastic: %w", err)
	}
	t = Terms{}
	if err := json.Unmarshal(text, &t); err != nil {
		return t, fmt.Errorf("elastic: %w", err)
	}
	return t, nil
}

// settle returns the terms of the settings, or t with the reason why they cannot be had.
func (t Terms) settle(s config.Elastic, places []place, getenv func(string) string) Terms {
	wanted := Terms{Mode: Mode(s.Release), Nodes: t.Nodes}
	err := launched(getenv)
	if err == nil && wanted.Ends() {
		err = canLeave(places)
	}
	if err == nil && wanted.Mode != exit {
		wanted.Nodes = nil
		for _, p := range places {
			wanted.Nodes = append(wanted.Nodes, p.Node)
		}
		wanted.Job, wanted.Batch, err = resizable(wanted.Nodes, getenv)
	}
	if err != nil {
		t.Unmet = fmt.Sprintf("elastic.release = %q: %v", s.Release, err)
		return t
	}
	return wanted
}

// Next describes the smaller allocation on which a run starts again after it stopped to give
// nodes back.
type Next struct {
	Stages int      `json:"stages"`
	Nodes  []string `json:"nodes"` // of the job

	Before []string `json:"-"` // nodes until now
	Idle   []int    `json:"-"` // ranks that are no longer needed
}

// Restarts returns the allocation on which the run starts again if the next layout has fewer
// stages and the mode is Restart; nil otherwise.
func (t Terms) Restarts(present, next layout.Layout) *Next {
	if t.Mode != Restart || next.Stages() >= present.Stages() {
		return nil
	}
	return &Next{next.Stages(), t.Kept(next.WorldRanks()), t.Kept(present.WorldRanks()), Lost(present, next)}
}

// Lost returns the ranks of the launched world that the present layout has and the next has
// not.
func Lost(present, next layout.Layout) (list []int) {
	for _, rank := range present.WorldRanks() {
		if _, stays := next.Place(rank); !stays {
			list = append(list, rank)
		}
	}
	return list
}
