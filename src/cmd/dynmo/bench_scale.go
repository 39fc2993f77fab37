package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"dynmo/src/comm"
	"dynmo/src/config"
	"dynmo/src/files"
	"dynmo/src/launch"
	"dynmo/src/nodebench"
	"dynmo/src/record"
	"dynmo/src/trace"
	"dynmo/src/train"
)

// benchScale returns the command that measures the overhead of a step beside arithmetic.
func benchScale(flags *benchFlags) *cobra.Command {
	var sets []string
	steps, meshes := 20, []string{"4x1", "16x1", "64x1", "256x1", "1x4", "1x16", "1x64", "1x256"}
	c := &cobra.Command{
		Use:   "scale",
		Short: "The cost of a step beside arithmetic, over the numbers of stages and replicas",
		Long: `The cost of a step beside arithmetic, over the numbers of stages and replicas.

Ranks are goroutines of this process, and their kernels do nothing. Times are milliseconds of
a core, for each rank and step; "process" includes Go's scheduler.

"pipeline" is the instructions of the schedule, their messages, and sums of gradients: each of
D replicas sends 2 (D-1) messages for a bucket of layers. "agree" is loss and norm with the
update. "measure" sends the measurements of the step to rank 0, and "decide" the decision to
all ranks. These three together should take less than a millisecond. "KB" is the bytes that a
rank sends in them, and "rank 0" their time on rank 0. "path" is the time for which a step waits
for "measure" and "decide", the median of steps (clock=virtual). "pipeline KB" is the bytes that
a rank sends in the pipeline: with one stage only gradients and their sums. With --set
dynamic.kind=KIND the counts of that kind's layers travel too.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkRange("steps", steps, 1, mostCount); err != nil {
				return err
			}
			return flags.scale(c, meshes, steps, sets)
		},
	}
	c.Flags().IntVar(&steps, "steps", steps, "steps of each run, behind two that do not count")
	c.Flags().StringSliceVar(&meshes, "mesh", meshes, "stages x replicas of the runs")
	c.Flags().StringArrayVar(&sets, "set", nil, "table.key=value of the runs' settings; may be given again")
	return c
}

// scale trains on each mesh and prints the figures.
func (f *benchFlags) scale(c *cobra.Command, meshes []string, steps int, sets []string) error {
	dir, remove, err := files.Scratch(os.TempDir(), "dynmo-scale")
	if err != nil {
		return err
	}
	defer remove()
	text, file := filepath.Join(dir, "text.txt"), filepath.Join(dir, "settings.toml")
	for path, content := range map[string]string{text: strings.Repeat("a quick fox ", 1000), file: ""} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return err
		}
	}
	var results []nodebench.Result
	table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "mesh\tpipeline\tagree\tmeasure\tdecide\ttogether\tprocess\trank 0\tpath\tKB\tpipeline KB\tverdict\t")
	ranks := 0
	for _, mesh := range meshes {
		var stages, replicas int
		if n, _ := fmt.Sscanf(mesh, "%dx%d", &stages, &replicas); n != 2 {
			return usageError{fmt.Errorf("--mesh %s: want stages x replicas, as 24x30", mesh)}
		}
		ranks += stages * replicas
	}
	show := stepsOf(barOf(c), ranks)
	for _, mesh := range meshes {
		var stages, replicas int
		_, _ = fmt.Sscanf(mesh, "%dx%d", &stages, &replicas) // the text was checked above
		settings, err := config.Load(file, append([]string{
			"device.kernel=null", "run.clock=virtual", "dynamic.kind=none", "balance.kind=partition", "balance.every=1000000", "data.path=" + text, "data.extensions=[]",
			"model.hidden=8", "model.heads=1", "model.sequence=4", "parallel.microbatch_size=1", "parallel.microbatches=4", fmt.Sprint("model.blocks=", max(2, stages-2)),
			fmt.Sprint("train.steps=", steps+warmup), fmt.Sprint("parallel.stages=", stages), fmt.Sprint("parallel.replicas=", replicas),
		}, sets...))
		if err != nil {
			return usageError{err}
		}
		m := scaleMeter{perStep: 1e3 / float64(steps), ranks: make([]scaleRank, stages*replicas)}
		if _, err = launch.Launch(settings, launch.Hooks{
			Stop: func() bool { return false }, Phase: m.enter, End: func(train.Outcome) {},
			Begin: func(launch.World) (record.Observer, error) { return &m, nil },
		}); err != nil {
			return fmt.Errorf("--mesh %s: %w", mesh, err)
		}
		show(stages * replicas)
		results = append(results, m.row(table, mesh))
	}
	if f.json {
		return f.report(c, results)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return unreached(results)
}

// warmup is how many first steps are not counted. They allocate buffers.
const warmup = 2

// scaleRank is the use of a rank in each phase: CPU seconds of its thread, and bytes sent. Only the
// rank's thread writes to it.
type scaleRank struct {
	room  comm.Room
	began [2]float64 // use at the start of the present phase
	in    [comm.RoomSave + 1][2]float64
}

// scaleMeter adds up the use of all ranks.
type scaleMeter struct {
	costWatcher
	perStep float64   // factor from seconds of all counted steps to milliseconds per step
	path    []float64 // by counted step: seconds of rank 0's clock
	ranks   []scaleRank
	process [2]float64 // of the process: CPU seconds at the start of the first counted step, and at the last phase
}

// enter records that a rank begins a phase.
func (m *scaleMeter) enter(world *comm.Group, step int, room comm.Room) {
	r, now := &m.ranks[world.Rank()], [2]float64{cpuSeconds(unix.CLOCK_THREAD_CPUTIME_ID), float64(world.Sent())}
	if step > warmup || step == warmup && room > comm.RoomDynamic {
		for i, x := range now {
			r.in[r.room][i] += x - r.began[i]
		}
	}
	if r.room, r.began = room, now; world.Rank() == 0 && step >= warmup {
		if m.process[1] = cpuSeconds(unix.CLOCK_PROCESS_CPUTIME_ID); m.process[0] == 0 {
			m.process[0] = m.process[1]
		}
	}
}

// Step records the seconds of a counted step on rank 0's clock.
func (m *scaleMeter) Step(s record.Metrics) error {
	if s.Step >= warmup {
		m.path = append(m.path, float64(s.BalanceSeconds))
	}
	return nil
}

// cpuSeconds returns the value of a clock of CPU time.
func cpuSeconds(clock int32) float64 {
	var t unix.Timespec
	_ = unix.ClockGettime(clock, &t) // every Linux has this clock
	return float64(t.Nano()) / 1e9
}

// row writes the figures of a mesh. It returns the reciprocal of the control time: how often it
// fits into a millisecond.
func (m *scaleMeter) row(table *tabwriter.Writer, mesh string) nodebench.Result {
	perRank := m.perStep / float64(len(m.ranks))
	fmt.Fprint(table, mesh)
	var control, root, kb, pipelined float64
	for _, room := range []comm.Room{comm.RoomPipeline, comm.RoomUpdate, comm.RoomProfile, comm.RoomBalance} {
		mean := 0.0
		for _, r := range m.ranks {
			mean += r.in[room][0] * perRank
			if sent := r.in[room][1] * perRank / 1e6; room == comm.RoomPipeline {
				pipelined += sent
			} else {
				kb += sent
			}
		}
		if room != comm.RoomPipeline {
			control, root = control+mean, root+m.ranks[0].in[room][0]*m.perStep
		}
		fmt.Fprintf(table, "\t%.3f", mean)
	}
	r := nodebench.Result{Name: "scale/" + mesh, Value: 1 / control, Unit: "in 1 ms", Reach: 1, Clock: "virtual", OK: control <= 1}
	fmt.Fprintf(table, "\t%.3f\t%.3f\t%.2f\t%.2f\t%.1f\t%.1f\t%s\t\n", control, (m.process[1]-m.process[0])*perRank, root, 1e3*trace.Median(m.path), kb, pipelined, r.Verdict())
	return r
}
