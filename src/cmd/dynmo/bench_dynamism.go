package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/kernel"
	"dynmo/src/launch"
	"dynmo/src/nodebench"
	"dynmo/src/record"
	"dynmo/src/study/dynamism"
	"dynmo/src/train"
)

// benchDynamism returns the command that measures what kinds of dynamism save, and what
// balancing makes of it.
func benchDynamism(flags *benchFlags) *cobra.Command {
	steps := dynamism.UsualSteps
	var kinds, only []string
	c := &cobra.Command{
		Use:   "dynamism",
		Short: "What kinds of dynamism save, and what balancing makes of it",
		Long: `What kinds of dynamism save, and what balancing makes of it, by real training steps.

The first table is of one rank, in turn with the dense model: the share of a step that
freezing half of the blocks saves; attention within 16 hash buckets at 1024 tokens; and
steps with early exits (and with states that go on, "propagate", where a token of which a
block computes keys and values only counts as a sixth) and with a mixture of depths,
against steps that take as much less as tokens in blocks are fewer. A frozen block has one of three passes left, or two where
a gradient goes through it, and a pass is a third: half of the blocks frozen save a third
of the step at most where nothing before them trains, else a sixth.

The second is of 8 stages, which are goroutines: 24 blocks, attention and MLP apart, on
the virtual clock, each kind at two strengths. Of one case all runs have the same seed,
data and final weights, bit for bit, and take their steps in turn: the dense model on
cuts by blocks, and the dynamic one on cuts by blocks (uniform) and by parameters
(param), which never move, and under partition and diffusion, by time and by parameters.
Step, imbalance and bubble ratio are medians over the last third of the steps; what
static cuts have is before, what balancers have is after. Overhead is the share of the
whole run that measuring, deciding and moving took.

Total is the speedup over the dense model, balancing that over the better static cuts, on
the same work: medians of the ratios of the same steps. Its ceiling is
(fill + M * static bottleneck) / (fill + M * max(t_max, T/P)), which no cuts can pass:
T/P is the mean load of a stage and t_max the largest layer. Cuts between layers cannot
have every stage at T/P; what the best of them would gain is beside it. The faster of the
balancers is to reach 0.95 of the ceiling: where that is below 1.05, cuts that never move
reach it too, and what is then gained without a move is noise. Its overhead is to be below
1 %, with moves as rare as in the paper, or 5 % where the model changes in every
iteration. The paper's speedups are those of its figure 3 and its
abstract, of 24 to 48 blocks on 24 stages and more, over what the last column names.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkNames("kind", kinds, dynamism.Kinds()); err != nil {
				return err
			}
			if err := checkNames("only", only, dynamismTables); err != nil {
				return err
			}
			if least := dynamism.LeastSteps; steps < least || steps > mostBenchSteps {
				return usageError{fmt.Errorf("--steps %d: want %d to %d", steps, least, mostBenchSteps)}
			}
			if len(kinds) == 0 {
				kinds = dynamism.Kinds()
			}
			return flags.dynamism(c, kinds, only, steps)
		},
	}
	c.Flags().StringSliceVar(&kinds, "kind", nil, "the only kinds that are tried: "+strings.Join(dynamism.Kinds(), ", "))
	c.Flags().StringSliceVar(&only, "only", nil, "the only table: work or balancing")
	c.Flags().IntVar(&steps, "steps", steps, "steps of each run of the second table; three times as many with exits, whose thresholds need them")
	return c
}

// dynamismTables are the names of the tables.
var dynamismTables = []string{"work", "balancing"}

// mostBenchSteps bounds the time of the benchmark to days.
const mostBenchSteps = 10_000

// dynamism measures and prints both tables of some kinds, or the only one.
func (f *benchFlags) dynamism(c *cobra.Command, kinds, only []string, steps int) error {
	wants := func(table string) bool { return len(only) == 0 || slices.Contains(only, table) }
	var saved, balanced []nodebench.Result
	if wants("work") {
		var err error
		saved, err = f.measure(func(k kernel.Backend, dev device.Device) ([]nodebench.Result, error) {
			return nodebench.Dynamism(k, dev, nodebench.Dynamic, kinds, f.rounds)
		})
		if err == nil && !f.json {
			err = f.write(c, saved)
		}
		if err != nil {
			return err
		}
	}
	var cases []dynamism.Figures
	for _, one := range dynamism.Cases() {
		if !slices.Contains(kinds, one.Kind) || !wants("balancing") {
			continue
		}
		m, err := dynamism.Measure(one, steps, trainQuietly)
		if err != nil {
			return err
		}
		cases = append(cases, m.Figures())
		last := cases[len(cases)-1]
		balanced = append(balanced, dynamismResults(last)...)
		if !f.json {
			if err := writeCase(c.OutOrStdout(), last); err != nil {
				return err
			}
		}
	}
	if f.json {
		return f.report(c, append(saved, balanced...))
	}
	if err := writeCases(c.OutOrStdout(), cases); err != nil {
		return err
	}
	f.warn(c, saved)
	return verdict(append(saved, balanced...))
}

// trainQuietly trains with ranks as goroutines and keeps no records.
func trainQuietly(settings config.Config, o record.Observer) (hash string, err error) {
	out, err := launch.Launch(settings, launch.Hooks{
		Stop:  func() bool { return false },
		Begin: func(launch.World) (record.Observer, error) { return o, nil },
		End:   func(train.Outcome) {},
	})
	return out.Hash, err
}
