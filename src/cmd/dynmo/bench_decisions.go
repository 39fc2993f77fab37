package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"dynmo/src/nodebench"
	"dynmo/src/record"
	"dynmo/src/study/decisions"
)

// benchDecisions returns the command that judges the balancer's decisions.
func benchDecisions(flags *benchFlags) *cobra.Command {
	o := decisions.Default()
	c := &cobra.Command{
		Use:   "decisions",
		Short: "The balancer's decisions where measured costs are noisy",
		Long: `The balancer's decisions where measured costs are noisy, beside those of an older
policy (commit 8a6fbfc: the costs of the newest step, moves whenever they predict
a faster one). What layers truly cost is known: 8 stages, 16 microbatches, chains of
24 to 48 layers whose costs rise along the chain (linear) or shrink with their weights
(pruned), with an embedding and a head of 3.5 blocks (ends), with attention and MLP
apart (halves), with cheap layers between (steps), or drawn with a heavy tail (heavy).

Measured times are the true ones and noise: none; one-sided of 20 or 40 % (times
1 + 0.2·Exp(1)); that of 20 % and bursts, in which one rank is 1.5 to 3 times slower
for 1 to 20 steps; symmetric of 20 % (log-normal); a drift of the true costs by up to
30 % over the run, with noise of 5 %; and noise as recorded where ranks shared two
cores. Of the last two only answers to changes are asked: by 5 %, as in the last, all
passes of a rank's step vary together, and 30 steps then tell no more than a gain of
5 %. A run has 500 steps and 100 decisions. Regret is the true bottleneck of the
cuts in use over the smallest possible or, where that is less, their true step over
that of the cuts with the smallest: with few microbatches a larger bottleneck can make
the faster step. A move is needless that gains less than 0.5 % of bottleneck and true
step, a run clean without one. A change is answered once the true step is within 5 %
of that of the best cuts. Diffusion ends short of these at times, whatever the noise:
its regret may be so many times the one that it has without noise, and it has answered
a change once it is within 5 % of where it would end if it knew the truth.

Steps are simulated, which for known costs gives what ranks measure. Some runs are
made on ranks too, with the pipeline on kernels that do no arithmetic, the profiler
and the migration of training: a step after which their cuts differ is wrong. The
seconds of a decision are real ones, of either policy in turn.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, flag := range []string{"clock", "threads", "rounds"} {
				if c.Flags().Changed(flag) {
					return usageError{fmt.Errorf("--%s: has no effect on bench decisions", flag)}
				}
			}
			if o.Seeds < 1 || o.Seeds > mostSeeds {
				return usageError{fmt.Errorf("--seeds %d: want 1 to %d", o.Seeds, mostSeeds)}
			}
			if steps, err := strconv.Atoi(o.Every); o.Every != "auto" && (err != nil || steps < 1) {
				return usageError{fmt.Errorf("--every %q: want a number of steps of at least 1, or auto", o.Every)}
			}
			for flag, list := range map[string][2][]string{"noise": {o.Noises, noiseNames()}, "family": {o.Families, decisions.Families()}} {
				for _, name := range list[0] {
					if !slices.Contains(list[1], name) {
						return usageError{fmt.Errorf("--%s %q: want %s", flag, name, strings.Join(list[1], ", "))}
					}
				}
			}
			return judgeDecisions(c, flags, o)
		},
	}
	c.Flags().IntVar(&o.Seeds, "seeds", o.Seeds, "runs of every family under every noise")
	c.Flags().StringVar(&o.Every, "every", o.Every, "balance.every of the runs: a number of steps, or auto; the reaches are meant for 5")
	c.Flags().StringSliceVar(&o.Noises, "noise", nil, "the only noises that are tried")
	c.Flags().StringSliceVar(&o.Families, "family", nil, "the only families of chains that are tried")
	return c
}

// noiseNames returns the names of all noises.
func noiseNames() []string {
	var names []string
	for _, n := range decisions.Noises {
		names = append(names, n.Name)
	}
	return names
}

// mostSeeds bounds the time of the benchmark to hours.
const mostSeeds = 1000

// judgeDecisions makes the runs and prints their figures.
func judgeDecisions(c *cobra.Command, flags *benchFlags, o decisions.Options) error {
	bar := newRunsBar(c.ErrOrStderr())
	o.Progress = bar.show
	runs, checks, err := decisions.Try(o)
	bar.close()
	if err != nil {
		return err
	}
	figures := decisions.Figures(runs)
	seconds, err := decisions.Time()
	if err != nil {
		return err
	}
	figures = append(figures, seconds...)
	var results []nodebench.Result
	for _, f := range figures {
		results = append(results, decisionResults(f)...)
	}
	results = append(results, checkResult(checks))
	if flags.json {
		return flags.report(c, results)
	}
	if err := writeDecisions(c.OutOrStdout(), figures, checks, o); err != nil {
		return err
	}
	return verdict(results)
}

// decisionResults returns a figure as two: of the old policy, which has nothing to
// reach, and of the present one.
func decisionResults(f decisions.Figure) []nodebench.Result {
	name := "decisions/" + f.Kind.Name
	for _, part := range []string{f.Noise, f.Balancer} {
		if part != "" {
			name += "_" + part
		}
	}
	old := nodebench.Result{Name: name + "_old", Value: f.Old, Unit: f.Kind.Unit, OK: true, Clock: f.Kind.Clock}
	present := old
	present.Name, present.Value, present.Reach, present.OK = name+"_new", f.New, f.Reach, f.OK()
	return []nodebench.Result{old, present}
}

// checkResult returns how many runs were made on ranks too. Steps after which cuts
// differ are wrong.
func checkResult(checks []decisions.Check) nodebench.Result {
	r := nodebench.Result{Name: "decisions/on_ranks", Value: float64(len(checks)), Unit: "runs", Clock: "virtual"}
	for _, c := range checks {
		r.Wrong += c.Differ
	}
	r.OK = r.Wrong == 0
	return r
}

// headings say what the kinds of figures are, in the order of the table.
var headings = []struct {
	kind decisions.Kind
	text string
}{
	{decisions.RegretP95, "Regret, 95th percentile of all decisions, worst family"},
	{decisions.LargestP95, "Bottleneck over the smallest, 95th percentile of all decisions, worst family"},
	{decisions.Needless, "Needless moves in 100 decisions"},
	{decisions.Clean, "Share of runs without a needless move"},
	{decisions.ChangeMedian, "Decisions until a change is answered, median"},
	{decisions.ChangeP95, "Decisions until a change is answered, 95th percentile"},
	{decisions.SlowMedian, "Decisions until a rank that has become 1.5 times slower is answered, median"},
	{decisions.SlowP95, "Decisions until a rank that has become 1.5 times slower is answered, 95th percentile"},
	{decisions.Seconds, "Milliseconds of a decision on 24 stages with 96 microbatches"},
	{decisions.SecondsRatio, "The same over those of the old policy, median over pairs"},
}

// writeDecisions writes the figures for people, in at most 100 columns.
func writeDecisions(out io.Writer, figures []decisions.Figure, checks []decisions.Check, o decisions.Options) error {
	fmt.Fprintf(out, "%d stages, %d microbatches, balance.every = %s, %d runs of %d steps for each noise and family\n",
		o.Stages, o.Microbatches, o.Every, o.Seeds, o.Steps)
	for _, h := range headings {
		kind := slices.DeleteFunc(slices.Clone(figures), func(f decisions.Figure) bool { return f.Kind != h.kind })
		if len(kind) == 0 {
			continue
		}
		clock := "clock=" + h.kind.Clock
		if h.kind.Clock == "wall" {
			clock += ", " + record.Here(false).CPU
		}
		fmt.Fprintf(out, "\n%s (%s)\n", h.text, clock)
		if err := writeFigures(out, kind); err != nil {
			return err
		}
	}
	r := checkResult(checks)
	_, err := fmt.Fprintf(out, "\nRuns made on ranks too: %d; steps after which their cuts differ: %d\n", len(checks), r.Wrong)
	return err
}

// writeFigures writes figures of one kind, with the columns that they have.
func writeFigures(out io.Writer, figures []decisions.Figure) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, f := range figures {
		heads, cells := []string{"balancer"}, []string{f.Balancer}
		if f.Noise != "" {
			heads, cells = append([]string{"noise"}, heads...), append([]string{f.Noise}, cells...)
		}
		if f.Family != "" {
			heads, cells = append(heads, "worst family"), append(cells, f.Family)
		}
		heads = append(heads, "old", "new", "reach", "verdict")
		cells = append(cells, fmt.Sprintf("%.4g", f.Old), fmt.Sprintf("%.4g", f.New), reachText(f), verdictText(f))
		if i == 0 {
			fmt.Fprintln(t, strings.Join(heads, "\t"))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	return t.Flush()
}

// reachText returns what a figure should reach, "-" if there is nothing.
func reachText(f decisions.Figure) string {
	switch {
	case f.Reach == 0:
		return "-"
	case f.Kind.AtLeast:
		return fmt.Sprintf(">= %g", f.Reach)
	}
	return fmt.Sprintf("<= %.4g", f.Reach)
}

// verdictText returns whether the present policy reaches it.
func verdictText(f decisions.Figure) string {
	switch {
	case f.Reach == 0:
		return "-"
	case f.OK():
		return "PASS"
	}
	return "FAIL"
}

// runsBar shows how many runs are done, once it takes long: a bar on a terminal, a
// line now and then elsewhere.
type runsBar struct {
	out   io.Writer
	bar   *progressbar.ProgressBar // nil where out is no terminal
	shown time.Time                // when last
}

const (
	// patience is how long people wait without asking.
	patience = 2 * time.Second
	// between is the time between two lines.
	between = 30 * time.Second
)

func newRunsBar(out io.Writer) *runsBar {
	b := &runsBar{out: out, shown: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		b.bar = progressbar.NewOptions(-1,
			progressbar.OptionSetWriter(out), progressbar.OptionSetDescription("runs"), progressbar.OptionSetWidth(30),
			progressbar.OptionShowCount(), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	return b
}

// show tells that so many runs of all are done.
func (b *runsBar) show(done, all int) {
	wait := patience
	if b.bar == nil {
		wait = between
	}
	if time.Since(b.shown) < wait {
		return
	}
	if b.bar == nil {
		b.shown = time.Now()
		fmt.Fprintf(b.out, "%d of %d runs\n", done, all)
		return
	}
	b.bar.ChangeMax(all)
	_ = b.bar.Set(done) // a terminal that is gone must not end the work
}

// close removes the bar.
func (b *runsBar) close() {
	if b.bar != nil && !b.bar.IsFinished() {
		_ = b.bar.Clear()
	}
}
