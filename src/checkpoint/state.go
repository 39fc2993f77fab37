package checkpoint

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/layout"
	"dynmo/src/plan"
)

// Keeper is a component whose decisions depend on earlier steps, with equal state on every rank.
type Keeper interface {
	// Save returns the keeper's state between two steps, as JSON.
	Save() ([]byte, error)
	// Restore sets the state that Save returned before a step of layout l. After an error the
	// keeper is unchanged.
	Restore(saved []byte, l layout.Layout) error
}

// Keepers returns the values that implement Keeper, by name.
func Keepers(values map[string]any) map[string]Keeper {
	list := make(map[string]Keeper)
	for name, x := range values {
		if k, ok := x.(Keeper); ok {
			list[name] = k
		}
	}
	return list
}

// stateVersion is the version of states that this program writes and reads.
const stateVersion = 1

// Ranks describes the ranks on which times were measured.
type Ranks struct {
	Hosts   []string `json:"hosts"`   // by rank
	Clock   string   `json:"clock"`   // of measurements
	Kernels string   `json:"kernels"` // measured kernels
}

// State is the state of a run in a checkpoint, apart from layers.
type State struct {
	Version int `json:"version"`
	Ranks
	Spent float64                    `json:"spent"`           // seconds after the last step, the largest over all ranks
	Parts map[string]json.RawMessage `json:"parts"`           // by name: states of the keepers
	Lost  string                     `json:"lost,omitempty"`  // the reason why there are no parts
	Dense *plan.Reference            `json:"dense,omitempty"` // the dense model's throughput for packing; also valid on other ranks
	// Products is the algorithms of dense products, if the kernels chose them (kernel.Tuner).
	Products json.RawMessage `json:"products,omitempty"`
}

// NewState returns the state of a run between two steps.
func NewState(on Ranks, keepers map[string]Keeper, dense *plan.Reference, products []byte) State {
	s := State{Version: stateVersion, Ranks: on, Parts: make(map[string]json.RawMessage), Dense: dense, Products: products}
	bytes := 0
	for name, k := range keepers {
		text, err := k.Save()
		if bytes += len(text); err == nil && bytes > mostRun/2 {
			err = fmt.Errorf("%d bytes, want at most %d", bytes, mostRun/2)
		}
		if err != nil { // training continues without the states
			s.Parts, s.Lost = nil, fmt.Sprintf("%s: %v", name, err)
			break
		}
		s.Parts[name] = text
	}
	return s
}

// ReadState reads a state.
func ReadState(text []byte) (s State, err error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return s, fmt.Errorf("the checkpoint's state: %w", err)
	}
	if version.Version != stateVersion {
		return s, fmt.Errorf("the checkpoint's state is of version %d, this program reads %d", version.Version, stateVersion)
	}
	if err = files.CheckKeys(text, s); err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && !(s.Spent >= 0 && s.Spent <= cost.MostSeconds) {
		err = fmt.Errorf("spent: %v, want seconds from 0 to %g", s.Spent, float64(cost.MostSeconds))
	}
	if err != nil {
		return State{}, fmt.Errorf("the checkpoint's state: %w", err)
	}
	return s, nil
}

// Here describes the run that resumes: its ranks, its settings, and those of the checkpoint.
type Here struct {
	Ranks
	Now, Was config.Config
}

// compared is a setting's value in the checkpoint and in this run.
type compared struct {
	settings string
	was, now any
}

// measured returns the settings on which measured times depend, except the number of ranks and
// their layout.
func (s State) measured(h Here) []compared {
	was, now := h.Was, h.Now
	return []compared{
		{"[device]", was.Device, now.Device},
		{"comm.latency_seconds", was.Comm.LatencySeconds, now.Comm.LatencySeconds},
		{"comm.bandwidth_bytes", was.Comm.BandwidthBytes, now.Comm.BandwidthBytes},
		{"comm.delay_most", was.Comm.DelayMost, now.Comm.DelayMost},
		{"the clock", s.Clock, h.Clock}, {"device.kernel", s.Kernels, h.Kernels},
	}
}

// applies returns an error unless the state is valid for this run's settings and ranks.
func (s State) applies(h Here) error {
	was, now := h.Was, h.Now
	for _, c := range append(s.measured(h), []compared{
		{"[parallel]", was.Parallel, now.Parallel}, {"[mesh]", was.Mesh, now.Mesh}, {"[schedule]", was.Schedule, now.Schedule},
		{"[balance]", was.Balance, now.Balance}, {"[repack]", was.Repack, now.Repack}, {"comm.transport", was.Comm.Transport, now.Comm.Transport},
		{"comm.nccl_ctas", was.Comm.NcclCTAs, now.Comm.NcclCTAs}, {"comm.sum", was.Comm.Sum, now.Comm.Sum},
		{"comm.sum_group", was.Comm.SumGroup, now.Comm.SumGroup}, {"optimizer.shard", was.Optimizer.Shard, now.Optimizer.Shard},
		{"model.recompute", was.Model.Recompute, now.Model.Recompute},
	}...) {
		if c.was != c.now {
			return fmt.Errorf("%s of the checkpoint differs", c.settings)
		}
	}
	if !slices.Equal(s.Hosts, h.Hosts) {
		return fmt.Errorf("the checkpoint's ranks ran on other hosts")
	}
	if s.Lost != "" {
		return fmt.Errorf("the checkpoint's state could not be saved: %s", s.Lost)
	}
	return nil
}

// Restore passes each keeper its part of a state; a missing part is an error. Measurements are
// valid only on the ranks that made them, and the state of a balancer only with equal settings of
// balancing.
func (s State) Restore(h Here, keepers map[string]Keeper, l layout.Layout) error {
	if err := s.applies(h); err != nil {
		return err
	}
	if got, want := slices.Sorted(maps.Keys(s.Parts)), slices.Sorted(maps.Keys(keepers)); !slices.Equal(got, want) {
		return fmt.Errorf("the checkpoint's state: parts: %.200q, want %q", got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(keepers)) {
		if err := keepers[name].Restore(s.Parts[name], l); err != nil {
			return fmt.Errorf("the checkpoint's state: %s: %w", name, err)
		}
	}
	return nil
}

// Reference returns the dense model's reference in a checkpoint, nil if there is none. It is valid
// on the same kind of ranks, for any number of them.
func (s State) Reference(h Here) (*plan.Reference, error) {
	if s.Dense == nil {
		return nil, nil
	}
	for _, c := range s.measured(h) {
		if c.was != c.now {
			return nil, fmt.Errorf("the dense model's seconds are not known: %s of the checkpoint differs", c.settings)
		}
	}
	return s.Dense, nil
}
