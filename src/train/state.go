package train

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/dynamic"
	"dynmo/src/elastic"
	"dynmo/src/input"
	"dynmo/src/layout"
	"dynmo/src/plan/policy"
	"dynmo/src/profile"
	"dynmo/src/store"
)

// keeper is what knows something of earlier steps that its answers follow from, the same
// on every rank.
type keeper interface {
	// Save returns what it knows between two steps, as JSON.
	Save() ([]byte, error)
	// Restore makes it go on from what Save returned before a step of a layout. With an
	// error it is as it was.
	Restore(saved []byte, l layout.Layout) error
}

// stateVersion is the version of states, which this program writes and reads.
const stateVersion = 1

// state is what a checkpoint has of a run besides its layers.
type state struct {
	Version int                        `json:"version"`
	Hosts   []string                   `json:"hosts"`           // by rank
	Clock   string                     `json:"clock"`           // of measurements
	Kernels string                     `json:"kernels"`         // that were measured
	Spent   float64                    `json:"spent"`           // seconds that followed the last step, the largest of all ranks
	Parts   map[string]json.RawMessage `json:"parts"`           // of keepers
	Lost    string                     `json:"lost,omitempty"`  // why there are none
	Dense   *policy.Reference          `json:"dense,omitempty"` // what packing goes by; also on other ranks
	// Products is how dense products are made, of a run whose kernels chose (kernel.Tuner).
	Products json.RawMessage `json:"products,omitempty"`
}

// referrer is a balancer that goes by what the model was before it first changed.
type referrer interface {
	Reference() policy.Reference
	Refer(policy.Reference) error
}

// begin makes what knows of earlier steps as a new run has it.
func (r *Rank) begin() (err error) {
	r.dynamism, r.profiler, r.spent = dynamic.New(r.Config), profile.Profiler{}, 0
	r.Balancer, err = policy.New(r.planner, policy.Options{Neighbours: neighbours{&r.profiler}, Nodes: nodes(r.World)})
	return err
}

// keepers returns those of this run, by name.
func (r *Rank) keepers() map[string]keeper {
	list := make(map[string]keeper)
	for name, x := range map[string]any{"balancer": r.Balancer, "dynamism": r.dynamism, "profiler": &r.profiler} {
		if k, ok := x.(keeper); ok {
			list[name] = k
		}
	}
	return list
}

// nodes returns the node of every rank, counted from 0; nil if all are on one.
func nodes(world *comm.Group) []int {
	list, known := make([]int, world.Size()), make(map[string]int)
	for rank, host := range world.Hosts() {
		if _, ok := known[host]; !ok {
			known[host] = len(known)
		}
		list[rank] = known[host]
	}
	if len(known) == 1 {
		return nil
	}
	return list
}

// addState adds the state to the checkpoint that is begun. Collective.
func (r *Rank) addState(w elastic.World) error {
	spent := []float64{r.spent}
	if err := comm.Allreduce(w.All, spent, func(a, b float64) float64 { return max(a, b) }); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if w.All.Rank() != 0 {
		return nil
	}
	text, err := json.Marshal(r.state(w.All.Hosts(), spent[0]))
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	r.saver.shot.AddRun(text)
	return nil
}

// state returns the state between two steps.
func (r *Rank) state(hosts []string, spent float64) state {
	s := state{
		Version: stateVersion, Hosts: hosts, Clock: r.Device.Clock().Kind(), Kernels: r.Backend.Name(),
		Spent: spent, Parts: make(map[string]json.RawMessage), Products: r.products,
	}
	bytes := 0
	for name, k := range r.keepers() {
		text, err := k.Save()
		if bytes += len(text); err == nil && bytes > store.MostRun/2 {
			err = fmt.Errorf("%d bytes, want at most %d", bytes, store.MostRun/2)
		}
		if err != nil { // training does not end for it
			s.Parts, s.Lost = nil, fmt.Sprintf("%s: %v", name, err)
			break
		}
		s.Parts[name] = text
	}
	if b, ok := r.Balancer.(referrer); ok && b.Reference().Seconds > 0 {
		dense := b.Reference()
		s.Dense = &dense
	}
	return s
}

// recall goes on from the state that a checkpoint has, text, and returns why that is not
// taken: measurements hold on the ranks that made them, and what a balancer has noted for
// what it is asked. It has none if it is of an older version.
func (r *Rank) recall(was config.Config, text []byte) (why string, err error) {
	if len(text) == 0 {
		return "", nil
	}
	s, err := readState(text)
	if err != nil {
		s = state{}
	} else {
		err = r.applies(was, s)
	}
	if err == nil {
		err = r.restore(s)
	}
	if err == nil {
		return "", nil
	}
	why = fmt.Sprintf("%.400s", input.Visible(err.Error()))
	if err := r.begin(); err != nil {
		return why, err
	}
	if lost := r.refer(was, s); lost != nil {
		why += fmt.Sprintf("; %.400s", input.Visible(lost.Error()))
	}
	return why, nil
}

// refer goes on from what a checkpoint has of the dense model, which holds on the same kind
// of ranks, however many there are.
func (r *Rank) refer(was config.Config, s state) error {
	b, ok := r.Balancer.(referrer)
	if !ok || s.Dense == nil {
		return nil
	}
	for _, c := range r.measured(was, s) {
		if c.was != c.now {
			return fmt.Errorf("the dense model's seconds are not known: %s of the checkpoint differs", c.settings)
		}
	}
	return b.Refer(*s.Dense)
}

// readState reads a state.
func readState(text []byte) (s state, err error) {
	var version struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return s, fmt.Errorf("the checkpoint's state: %w", err)
	}
	if version.Version != stateVersion {
		return s, fmt.Errorf("the checkpoint's state is of version %d, this program reads %d", version.Version, stateVersion)
	}
	if err = input.CheckKeys(text, s); err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err == nil && !(s.Spent >= 0 && s.Spent <= cost.MostSeconds) {
		err = fmt.Errorf("spent: %v, want seconds from 0 to %g", s.Spent, float64(cost.MostSeconds))
	}
	if err != nil {
		return s, fmt.Errorf("the checkpoint's state: %w", err)
	}
	return s, nil
}

// compared is settings of a checkpoint and of this run.
type compared struct {
	settings string
	was, now any
}

// measured returns what seconds depend on besides the number of ranks and their layout.
func (r *Rank) measured(was config.Config, s state) []compared {
	now := r.Config
	return []compared{
		{"[device]", was.Device, now.Device},
		{"comm.latency_seconds", was.Comm.LatencySeconds, now.Comm.LatencySeconds},
		{"comm.bandwidth_bytes", was.Comm.BandwidthBytes, now.Comm.BandwidthBytes},
		{"comm.delay_most", was.Comm.DelayMost, now.Comm.DelayMost},
		{"the clock", s.Clock, r.Device.Clock().Kind()}, {"device.kernel", s.Kernels, r.Backend.Name()},
	}
}

// applies returns an error unless a state holds for this run's settings and ranks.
func (r *Rank) applies(was config.Config, s state) error {
	now := r.Config
	for _, c := range append(r.measured(was, s), []compared{
		{"[parallel]", was.Parallel, now.Parallel}, {"[mesh]", was.Mesh, now.Mesh}, {"[schedule]", was.Schedule, now.Schedule},
		{"[balance]", was.Balance, now.Balance}, {"[repack]", was.Repack, now.Repack}, {"comm.carrier", was.Comm.Carrier, now.Comm.Carrier},
		{"comm.nccl_ctas", was.Comm.NcclCTAs, now.Comm.NcclCTAs},
	}...) {
		if c.was != c.now {
			return fmt.Errorf("%s of the checkpoint differs", c.settings)
		}
	}
	if here := r.World.Hosts(); !slices.Equal(s.Hosts, here) {
		return fmt.Errorf("the checkpoint's ranks ran on other hosts")
	}
	if s.Lost != "" {
		return fmt.Errorf("the checkpoint's state could not be saved: %s", s.Lost)
	}
	return nil
}

// restore hands keepers what a state has of them: all of it, or it is an error.
func (r *Rank) restore(s state) error {
	keepers := r.keepers()
	if got, want := slices.Sorted(maps.Keys(s.Parts)), slices.Sorted(maps.Keys(keepers)); !slices.Equal(got, want) {
		return fmt.Errorf("the checkpoint's state: parts: %.200q, want %q", got, want)
	}
	for _, name := range slices.Sorted(maps.Keys(keepers)) {
		if err := keepers[name].Restore(s.Parts[name], r.layout); err != nil {
			return fmt.Errorf("the checkpoint's state: %s: %w", name, err)
		}
	}
	r.spent = s.Spent
	return nil
}
