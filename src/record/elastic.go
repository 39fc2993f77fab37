package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// Packed is the detail of an event of kind Repack: after the step the model was packed onto fewer
// ranks.
type Packed struct {
	Kind         string `json:"kind"` // as the setting repack.kind
	StagesBefore int    `json:"stages_before"`
	Stages       int    `json:"stages"`
	RanksBefore  int    `json:"ranks_before"` // ranks of all replicas that train
	Ranks        int    `json:"ranks"`
	NodesBefore  int    `json:"nodes_before"` // nodes with a rank that trains
	Nodes        int    `json:"nodes"`
	Microbatches int    `json:"microbatches"` // of a replica, after the packing
	Exact        bool   `json:"exact"`        // whether losses stay the same, bit by bit
	Throughput   Float  `json:"throughput"`   // predicted, as a share of the throughput of the dense model
	Deciding     Float  `json:"deciding_seconds"`
	Moving       Float  `json:"moving_seconds"`
	Resizing     Float  `json:"resizing_seconds"`
}

// Released is the detail of an event of kind Release: the fate of the ranks that a packing left
// without layers, and of their nodes.
type Released struct {
	Mode        string    `json:"mode"`         // as the setting elastic.release
	NodesBefore []string  `json:"nodes_before"` // nodes of the job before
	Nodes       []string  `json:"nodes"`        // nodes of the job afterwards
	Ranks       []int     `json:"ranks"`        // ranks of the launched world that have ended
	Checkpoint  Float     `json:"checkpoint_seconds"`
	Goodbye     Float     `json:"goodbye_seconds"`
	Scontrol    Float     `json:"scontrol_seconds"`
	Tries       int       `json:"tries"`             // number of calls of scontrol
	Refused     string    `json:"refused,omitempty"` // the reason why the job still has the nodes
	Time        time.Time `json:"time,omitzero"`     // of the event
}

// GivenBack returns how many nodes the job has returned to Slurm.
func (r Released) GivenBack() int {
	if r.Refused != "" || r.Mode != "slurm" && r.Mode != "restart" {
		return 0
	}
	return max(0, len(r.NodesBefore)-len(r.Nodes))
}

// Detail converts a struct to the detail of an event.
func Detail(of any) (map[string]any, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, wrap(err)
	}
	var d map[string]any
	return d, wrap(json.Unmarshal(text, &d))
}

// Read fills a struct from the detail of an event.
func (e Event) Read(into any) error {
	text, err := json.Marshal(e.Detail)
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("record: %s event of step %d: %w", e.Kind, e.Step, err)
	}
	return nil
}
