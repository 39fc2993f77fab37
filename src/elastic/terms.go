package elastic

import (
	"encoding/json"
	"fmt"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/layout"
)

// Mode says what happens to ranks that no longer hold a layer.
type Mode string

// Modes, the values of the setting elastic.release.
const (
	Park    Mode = "park"    // such ranks wait until the run ends
	exit    Mode = "exit"    // such ranks end before the run does
	Slurm   Mode = "slurm"   // such ranks end before the run does, and Slurm takes their nodes back
	Restart Mode = "restart" // the whole run ends, and a job script starts it again on fewer nodes
)

// Terms are the agreement of all ranks about ranks that hold no layer. Every rank has the same Terms.
type Terms struct {
	Mode  Mode     // the mode of the settings, or Park if Unmet says why not
	Nodes []string // name of each rank's node, by rank of the launched world
	Batch string   // the node of the batch script, which Slurm never takes back; "" if there is none
	Job   Job      // the job whose nodes are given back, in modes slurm and restart
	Unmet string   // a warning for the log: why Mode is not the mode of the settings; "" if it is
}

// Ends reports whether ranks without layers end before the run does.
func (t Terms) Ends() bool { return t.Mode == exit || t.Mode == Slurm }

// NodesOf returns the nodes of the given ranks of the launched world, each node once. Nodes are in
// ascending order of their lowest ranks.
func (t Terms) NodesOf(ranks []int) []string {
	var list []string
	for _, rank := range slices.Sorted(slices.Values(ranks)) {
		if node := t.Nodes[rank]; !slices.Contains(list, node) {
			list = append(list, node)
		}
	}
	return list
}

// Kept returns the nodes that the job keeps if only the given ranks go on: the nodes of these ranks and
// the node of the batch script.
func (t Terms) Kept(ranks []int) []string {
	nodes := t.NodesOf(ranks)
	if t.Batch != "" && !slices.Contains(nodes, t.Batch) {
		nodes = append(nodes, t.Batch)
	}
	return nodes
}

// Parking returns terms of mode Park: ranks without layers wait until the run ends.
func Parking(base *comm.Group) Terms {
	return Terms{Mode: Park, Nodes: base.Hosts()}
}

// Here describes the place where this rank runs.
type Here struct {
	Getenv      func(string) string // reads the rank's environment, as os.Getenv does
	CannotLeave error               // why this rank cannot end before the others; nil if it can
}

// place is what a rank sends to rank 0: its node, and the text of Here.CannotLeave, "" if it can leave.
type place struct{ Node, CanLeave string }

// Agree returns the terms that the settings s ask for. If a condition of these terms does not hold, it
// returns the terms of Parking, with the reason in Unmet. Rank 0 checks the conditions; in modes slurm
// and restart it runs commands of Slurm. base is the launched world. An error says that the ranks
// could not agree. Collective over base.
func Agree(base *comm.Group, s config.Elastic, here Here) (Terms, error) {
	t := Parking(base)
	if Mode(s.Release) == Park {
		return t, nil
	}
	mine := place{Node: here.Getenv("SLURMD_NODENAME")}
	if here.CannotLeave != nil {
		mine.CanLeave = here.CannotLeave.Error()
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

// settle returns the terms of the settings, or t with the reason why their conditions do not hold.
func (t Terms) settle(s config.Elastic, places []place, getenv func(string) string) Terms {
	wanted := Terms{Mode: Mode(s.Release), Nodes: t.Nodes}
	err := launched(wanted.Mode, getenv)
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
	Stages int      `json:"stages"` // number of stages of the new layout
	Nodes  []string `json:"nodes"`  // nodes that the job keeps

	Before []string `json:"-"` // nodes of the job until now
	Idle   []int    `json:"-"` // ranks of the present layout, by rank of the launched world, that the new layout does not need
}

// Restarts returns the allocation on which the run starts again. It returns nil, and the run goes on,
// unless the mode is Restart and the next layout has fewer stages than the present one.
func (t Terms) Restarts(present, next layout.Layout) *Next {
	if t.Mode != Restart || next.Stages() >= present.Stages() {
		return nil
	}
	return &Next{next.Stages(), t.Kept(next.WorldRanks()), t.Kept(present.WorldRanks()), Lost(present, next)}
}

// Lost returns the ranks that the present layout has and the next layout does not have. Ranks are those
// of the launched world.
func Lost(present, next layout.Layout) (list []int) {
	for _, rank := range present.WorldRanks() {
		if _, stays := next.Place(rank); !stays {
			list = append(list, rank)
		}
	}
	return list
}
