package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/cost"
	"dynmo/src/lab/study"
	"dynmo/src/record"
)

// meshFlags are the flags of plan --meshes.
type meshFlags struct {
	on          bool
	gpus, batch int
}

// flags adds the flags to a command.
func (m *meshFlags) flags(c *cobra.Command) {
	c.Flags().BoolVar(&m.on, "meshes", false, "compare all stages x replicas of --gpus ranks for the same --batch, and say which five take the shortest steps")
	c.Flags().IntVar(&m.gpus, "gpus", 0, "with --meshes: ranks; 0 takes stages x replicas of CONFIG")
	c.Flags().IntVar(&m.batch, "batch", 0, "with --meshes: sequences in a step of all replicas; 0 takes those of CONFIG")
}

// check refuses flags without effect. It takes missing values from the settings.
func (m *meshFlags) check(c *cobra.Command, p config.Parallel) error {
	for _, flag := range []string{"gpus", "batch"} {
		if c.Flags().Changed(flag) && !m.on {
			return fmt.Errorf("--%s: has no effect without --meshes", flag)
		}
	}
	if m.on && c.Flags().Changed("csv") {
		return errors.New("--csv: has no effect beside --meshes, which plans several steps")
	}
	const most = 1 << 19
	if m.gpus < 0 || m.gpus > most || m.batch < 0 {
		return fmt.Errorf("--gpus %d --batch %d: want 0 to %d ranks and 0 sequences or more", m.gpus, m.batch, most)
	}
	if m.gpus == 0 {
		m.gpus = p.Stages * p.Replicas
	}
	if m.batch == 0 {
		m.batch = batchOf(p)
	}
	return nil
}

// batchOf returns the sequences in a step of all replicas.
func batchOf(p config.Parallel) int { return p.Replicas * p.Microbatches * p.MicrobatchSize }

// meshesAnswer is the output of dynmo plan --meshes. Times are in seconds.
type meshesAnswer struct {
	Clock   string          `json:"clock"` // sim
	Costs   string          `json:"costs_clock"`
	Network string          `json:"assumed_network,omitempty"`      // as in planAnswer
	Memory  int64           `json:"assumed_memory_bytes,omitempty"` // limit of a GPU that the costs were estimated for; 0: that of the settings
	GPUs    int             `json:"gpus"`
	Batch   int             `json:"batch"`                           // sequences
	Present float64         `json:"settings_step_seconds,omitempty"` // of CONFIG, if it has these GPUs and this batch and can be planned
	Meshes  []study.MeshRow `json:"meshes"`
	Left    []study.LeftOut `json:"left_out"`
	reasons []string
}

// meshes compares all meshes of a number of GPUs.
func (w *whatIf) meshes(t cost.Table, o study.Options, m meshFlags, show func(done, total int64)) (meshesAnswer, error) {
	a := meshesAnswer{Clock: "sim", Costs: t.Source(), Network: w.assumed, GPUs: m.gpus, Batch: m.batch, Meshes: []study.MeshRow{}}
	if o.Config.Balance.MemoryLimitBytes == 0 {
		a.Memory = memoryOf(t)
		o.Config.Balance.MemoryLimitBytes = a.Memory
	}
	best, left, err := study.Meshes(t, o, m.gpus, m.batch, show)
	if err != nil {
		return a, fmt.Errorf("--gpus %d --batch %d: no mesh: %w", m.gpus, m.batch, err)
	}
	if p := o.Config.Parallel; p.Stages*p.Replicas == m.gpus && batchOf(p) == m.batch {
		if present, err := study.Plan(t, o); err == nil { // an error means that the settings are left out, or that their schedule does not fit
			a.Present = present.Seconds
		}
	}
	for _, b := range best {
		if b.Without = w.idle(b.Config); a.Memory > 0 {
			b.Sets = append(b.Sets, fmt.Sprintf("balance.memory_limit_bytes=%d", a.Memory))
		}
		a.Meshes = append(a.Meshes, b.MeshRow)
	}
	a.Left, a.reasons = append([]study.LeftOut{}, left...), study.WhyLeftOut(left, o.Config.Balance.MemoryLimitBytes)
	return a, nil
}

// print writes the answer for people.
func (a meshesAnswer) print(out io.Writer) error {
	fmt.Fprintf(out, "%d GPUs, %d sequences in a step  (clock=sim, on costs of clock=%s)\n\n", a.GPUs, a.Batch, a.Costs)
	var rows [][]string
	for _, m := range a.Meshes {
		kind := m.Kind
		if m.Kind != m.Schedule {
			kind += ": " + m.Schedule
		}
		rows = append(rows, []string{
			fmt.Sprintf("%d x %d", m.Stages, m.Replicas), fmt.Sprint(m.Microbatches), kind, m.Grain, duration(m.Step), factor(a.Present / m.Step),
			ratio(m.Step / m.Idle.Busy), megabytes(m.Bytes), fmt.Sprintf("%s %.0f %%", m.Cause, 100*m.Share),
		})
	}
	if err := record.Table(out, []string{"mesh", "M", "schedule", "grain", "step", "speedup", "to work", "most bytes", "limited by"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(out)
	if a.Present > 0 {
		paragraph(out, "settings", "those of CONFIG take %s a step", duration(a.Present))
	}
	if a.Network != "" {
		paragraph(out, "network", "%s", assumedNetwork(a.Network))
	}
	if a.Memory > 0 {
		paragraph(out, "memory", "at most %.0f GB a GPU, as the GPU of the costs has; --set balance.memory_limit_bytes=N is another limit", float64(a.Memory)/1e9)
	}
	for i, m := range a.Meshes {
		name, doubt := "or", ""
		switch {
		case m.MadeUp:
			name, doubt = "estimated", "profile it first: "
		case !slices.ContainsFunc(a.Meshes[:i], func(m study.MeshRow) bool { return !m.MadeUp }):
			name = "best"
		}
		paragraph(out, name, "%s%s", doubt, setsWithout(m.Sets, m.Without))
	}
	for i, reason := range a.reasons {
		paragraph(out, []string{"left out", "and"}[min(i, 1)], "%s", reason)
	}
	return nil
}
