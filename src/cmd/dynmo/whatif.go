package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/comm/mpi"
	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/files"
	"dynmo/src/lab/roofline"
	"dynmo/src/lab/study"
	"dynmo/src/lab/verdict"
	"dynmo/src/plan/search"
	"dynmo/src/record"
	"dynmo/src/sim"
)

// whatIf holds the flags of commands that compute on costs, without a run.
type whatIf struct {
	sets           []string
	costs, network string
	json           bool
	assumed        string           // assumed network if none was named: a GPU of roofline, or recordedNetwork; "": none was assumed
	stderr         func() io.Writer // of the command that runs
}

// flags adds the flags of a command that computes on costs.
func (w *whatIf) flags(c *cobra.Command) {
	w.stderr = c.ErrOrStderr
	c.Flags().StringArrayVar(&w.sets, "set", nil, "table.key=value, over what CONFIG says; may be given again")
	c.Flags().StringVar(&w.costs, "costs", "", "cost table of dynmo profile, or costs.jsonl of a run directory; - is standard input")
	c.Flags().StringVar(&w.network, "network", "", "TOML file that describes the network, - is standard input; or nodes of "+strings.Join(roofline.Names(), " or ")+" GPUs by name, which estimated costs take without it; costs of a simulated run take its network, other costs [comm] of CONFIG between all ranks")
	c.Flags().BoolVar(&w.json, "json", false, "answer in JSON, times in seconds")
	require(c, "costs")
}

// question names the command that computes, and the settings that can affect its answer.
type question struct {
	command string
	kinds   []string // kinds of dynamism of generated costs; "none" for none
	idle    []string // settings without effect on the answer, table.key
}

// beside maps settings that --network replaces to the keys of the network's file.
var beside = map[string]string{
	"comm.latency_seconds": "latency_seconds of [node] and [between]",
	"comm.bandwidth_bytes": "bandwidth_bytes of [node] and [between]",
	"comm.delay_most":      "most of [delay]",
}

// check refuses --set of settings without effect on the answer.
func (w *whatIf) check(c config.Config, q question) error {
	problems := []error{c.CheckSets(q.command, w.sets, q.kinds)}
	for _, set := range w.sets {
		name, _, _ := strings.Cut(set, "=")
		switch name = strings.TrimSpace(name); {
		case w.network != "" && beside[name] != "":
			problems = append(problems, fmt.Errorf("--set %s: has no effect beside --network: set %s in %s", name, beside[name], w.network))
		case slices.Contains(q.idle, name):
			problems = append(problems, fmt.Errorf("--set %s: has no effect on this answer of %s", name, q.command))
		}
	}
	return errors.Join(problems...)
}

// read reads settings, costs and network. Its errors are usage errors.
func (w *whatIf) read(file string, q question) (record.Series, study.Options, error) {
	fail := func(err error) (record.Series, study.Options, error) { return nil, study.Options{}, usageError{err} }
	if err := oneStdin(file, w.costs, w.network); err != nil {
		return fail(err)
	}
	c, err := loadSettings(file, w.sets, w.stderr())
	if err != nil {
		return fail(err)
	}
	if err := w.check(c, q); err != nil {
		return fail(err)
	}
	o := onCluster(c)
	series, notes, err := record.OpenSeries(w.costs, 0)
	if err != nil {
		return fail(fmt.Errorf("--costs: %w", err))
	}
	if w.network == "" {
		err = w.assume(&o, series[0])
	} else {
		o.Network, err = readNetwork(w.network)
	}
	if err != nil {
		return fail(fmt.Errorf("--network: %w", err))
	}
	tellNotes(w.stderr(), notes...)
	for i := range series {
		series[i].Table, series[i].Model = search.Suit(series[i].Table, series[i].Model, c)
	}
	costs := series.Costs()
	for i, s := range series {
		stages := c.Parallel.Stages
		if s.Run != nil {
			stages = s.Run.Layout.Stages() // figures of ranks hold for this number of stages only
		}
		err := usable(costs[i].Mean(), stages)
		if err == nil && s.Model != "" {
			err = sameModel(search.Shape(c), costs[i].Model)
		}
		if n := len(s.Layers); err == nil && n != c.Layers() {
			err = otherModel(fmt.Sprintf("layers: %d, want %d", n, c.Layers()))
		}
		if other, ok := errors.AsType[otherModel](err); ok {
			err = fmt.Errorf("%w: for new costs %s", other, w.remedy(file, s.Table))
		}
		if err != nil {
			return fail(fmt.Errorf("--costs: %s: table %d: %w", w.costs, i, err))
		}
	}
	return series, o, nil
}

// otherModel is the error for costs of another model than the settings'.
type otherModel string

func (e otherModel) Error() string { return string(e) }

// remedy returns the command that makes costs for the settings. The costs are measured, or
// estimated if those of the table are.
func (w *whatIf) remedy(file string, t cost.Table) string {
	words := append([]string{"dynmo", "profile", file}, setWords(w.sets)...)
	if t.Clock == cost.Estimated {
		words = append(words, "--estimate", t.Device)
	}
	return "run " + commandLine(append(words, "-o", "FILE"))
}

// readNetwork reads the network that --network names: the nodes of a known GPU, or a file.
func readNetwork(name string) (sim.Network, error) {
	if slices.Contains(roofline.Names(), name) {
		return roofline.Network(name)
	}
	f, err := files.Open(name, files.Network)
	if err != nil {
		return sim.Network{}, err
	}
	defer f.Close()
	return sim.ReadNetwork(name, f)
}

// recordedNetwork is the assumed network of costs that a simulated run recorded.
const recordedNetwork = "recorded"

// assume sets the network that goes with the costs, for commands without --network. Costs of a simulated run
// take the network that the run recorded. Other estimated costs take the nodes of their GPU, and the delays
// of [comm]. It changes nothing if --set gives the speed of messages, nor for the nodes of a GPU if CONFIG
// does.
func (w *whatIf) assume(o *study.Options, costs record.Phase) error {
	isSet := func(keys ...string) bool {
		return slices.ContainsFunc(w.sets, func(set string) bool {
			name, _, _ := strings.Cut(set, "=")
			return slices.Contains(keys, strings.TrimSpace(name))
		})
	}
	given, standard := o.Config.Comm, config.Default().Comm
	switch {
	case isSet("comm.latency_seconds", "comm.bandwidth_bytes"):
		return nil
	case costs.IsSimulated():
		n := verdict.Network(costs.Run)
		if isSet("comm.delay_most", "run.seed") {
			n.Delay = o.Network.Delay
		}
		o.Network, w.assumed = n, recordedNetwork
		return nil
	case costs.Clock != cost.Estimated || given.LatencySeconds != standard.LatencySeconds || given.BandwidthBytes != standard.BandwidthBytes:
		return nil
	}
	n, err := roofline.Network(costs.Device)
	if err != nil {
		return err
	}
	n.Delay, o.Network, w.assumed = o.Network.Delay, n, costs.Device
	return nil
}

// assumedNetwork describes a network that whatIf.assume took.
func assumedNetwork(name string) string {
	if name == recordedNetwork {
		return "that of the simulated run whose costs these are; --network FILE names another"
	}
	return fmt.Sprintf("nodes of %s GPUs, assumed for estimated costs; --network FILE names another, --set comm.bandwidth_bytes=N one link for all", name)
}

// memoryOf returns the memory that a rank has for its layers, by the GPU that costs with bytes were estimated
// for. It is 0 if that is not known.
func memoryOf(t cost.Table) int64 {
	g, err := roofline.Known(t.Device)
	if err != nil || t.Weightless() {
		return 0
	}
	return g.Memory
}

// loadSettings loads the settings of a command line. The first rank writes notes on former names of
// settings to stderr. "-" is standard input, which the ranks of a launcher do not share.
func loadSettings(path string, sets []string, stderr io.Writer) (config.Config, error) {
	if path == files.Stdin && mpi.Launched() {
		return config.Config{}, errors.New("CONFIG -: standard input reaches rank 0 alone, want a file")
	}
	c, notes, err := config.LoadWithNotes(path, sets)
	if !mpi.Launched() || mpi.LaunchRank() == 0 {
		tellNotes(stderr, notes...)
	}
	return c, err
}

// oneStdin returns an error if several paths are standard input.
func oneStdin(paths ...string) error {
	n := 0
	for _, path := range paths {
		if path == files.Stdin {
			n++
		}
	}
	if n > 1 {
		return errors.New("-: standard input can be one file, want names of the others")
	}
	return nil
}

// sameModel returns an error if costs were measured with other settings. Both are in the form of
// search.Shape. The error names the first difference.
func sameModel(settings, costs string) error {
	if settings == costs {
		return nil
	}
	a, b := strings.Fields(settings), strings.Fields(costs)
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return otherModel(fmt.Sprintf("model: the costs hold for %s, CONFIG says %s", b[i], a[i]))
		}
	}
	return otherModel(fmt.Sprintf("model: the costs hold for %q, CONFIG says %q", costs, settings))
}

// usable returns an error if a table lacks data to compute a step on `stages` stages.
func usable(t cost.Table, stages int) error {
	if !slices.Contains([]string{"wall", "virtual", "sim", cost.Estimated}, t.Clock) {
		return fmt.Errorf("clock: %q, want wall, virtual, sim or %s", t.Clock, cost.Estimated)
	}
	total := 0.0
	for _, s := range t.Seconds() {
		total += s
	}
	if total == 0 {
		return errors.New("layers: no layer takes any time, want seconds above 0")
	}
	for _, f := range []struct {
		field string
		list  []float64
		zero  bool // 0 is allowed
		want  string
	}{
		{"slow", t.Slow, false, "a finite number > 0"},
		{"fixed", t.Fixed, true, "a finite number >= 0"},
	} {
		if n := len(f.list); n != 0 && n != stages {
			return fmt.Errorf("%s: %d numbers, want one for each of the %d stages", f.field, n, stages)
		}
		for s, x := range f.list {
			if !(x >= 0) || math.IsInf(x, 1) || x == 0 && !f.zero {
				return fmt.Errorf("%s[%d]: %v, want %s", f.field, s, x, f.want)
			}
		}
	}
	return nil
}

// at returns the costs of a step of a series; step -1 is the last.
func at(series cost.Series, step int) (cost.Table, error) {
	last := series[len(series)-1]
	if step == -1 {
		return last.Mean(), nil
	}
	for _, s := range series {
		if step >= s.Step && step < s.Step+max(1, s.Steps) {
			return s.Mean(), nil
		}
	}
	return cost.Table{}, fmt.Errorf("--step %d: costs are of the steps %d to %d, want one of them or -1",
		step, series[0].Step, last.Step+max(1, last.Steps)-1)
}
