package record

import (
	"encoding/json"
	"fmt"
	"time"
)

// Packed is the detail of an event of kind Repack: the model was packed onto fewer
// ranks behind the step.
type Packed struct {
	Kind         string `json:"kind"` // as repack.kind has it
	StagesBefore int    `json:"stages_before"`
	Stages       int    `json:"stages"`
	RanksBefore  int    `json:"ranks_before"` // that train, of all replicas
	Ranks        int    `json:"ranks"`
	NodesBefore  int    `json:"nodes_before"` // with a rank that trains
	Nodes        int    `json:"nodes"`
	Microbatches int    `json:"microbatches"` // of a replica, from then on
	Exact        bool   `json:"exact"`        // whether losses stay the same, bit for bit
	Throughput   Float  `json:"throughput"`   // predicted, as a share of the dense model's
	Deciding     Float  `json:"deciding_seconds"`
	Moving       Float  `json:"moving_seconds"`
	Resizing     Float  `json:"resizing_seconds"`
}

// Released is the detail of an event of kind Release: what became of the ranks that a
// packing left without layers, and of their nodes.
type Released struct {
	Mode        string    `json:"mode"`         // as elastic.release has it
	NodesBefore []string  `json:"nodes_before"` // of the job
	Nodes       []string  `json:"nodes"`        // likewise, afterwards
	Ranks       []int     `json:"ranks"`        // of the launched world, that have ended
	Checkpoint  Float     `json:"checkpoint_seconds"`
	Goodbye     Float     `json:"goodbye_seconds"`
	Scontrol    Float     `json:"scontrol_seconds"`
	Tries       int       `json:"tries"`             // of scontrol
	Refused     string    `json:"refused,omitempty"` // why the nodes stay
	Time        time.Time `json:"time,omitzero"`     // of the event
}

// GivenBack returns how many nodes the job has no more.
func (r Released) GivenBack() int {
	if r.Refused != "" || r.Mode != "slurm" && r.Mode != "restart" {
		return 0
	}
	return max(0, len(r.NodesBefore)-len(r.Nodes))
}

// Detail returns a struct as the detail of an event.
func Detail(of any) (map[string]any, error) {
	text, err := json.Marshal(of)
	if err != nil {
		return nil, wrap(err)
	}
	var d map[string]any
	return d, wrap(json.Unmarshal(text, &d))
}

// Read reads the detail of an event into a struct.
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
