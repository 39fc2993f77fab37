package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/launch"
	"dynmo/src/nodebench"
	"dynmo/src/record"
	"dynmo/src/study/dynamism"
	"dynmo/src/train"
)

// benchDynamism returns the command that measures what dynamism saves, and what balancing
// makes of it.
func benchDynamism(flags *benchFlags) *cobra.Command {
	o := dynamism.Default()
	var kinds []string
	c := &cobra.Command{
		Use:   "dynamism",
		Short: "What kinds of dynamism save, and what balancing makes of it",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := checkNames("kind", kinds, dynamism.Kinds()); err != nil {
				return err
			}
			return flags.balancing(c, kinds, o)
		},
	}
	c.Flags().StringSliceVar(&kinds, "kind", nil, "the only kinds that are tried: "+strings.Join(dynamism.Kinds(), ", "))
	c.Flags().IntVar(&o.Hidden, "hidden", o.Hidden, "channels")
	c.Flags().IntVar(&o.Steps, "steps", o.Steps, "steps of each run")
	c.Flags().IntVar(&o.Microbatches, "microbatches", o.Microbatches, "microbatches")
	c.Flags().IntVar(&o.MicrobatchSize, "microbatch-size", o.MicrobatchSize, "sequences in a microbatch")
	c.Flags().IntVar(&o.Sequence, "sequence", o.Sequence, "tokens in a sequence")
	return c
}

// balancing makes the runs of the second table and prints it.
func (f *benchFlags) balancing(c *cobra.Command, kinds []string, o dynamism.Options) error {
	var results []nodebench.Result
	for _, one := range dynamism.Cases() {
		if len(kinds) > 0 && !slices.Contains(kinds, one.Kind) {
			continue
		}
		m, err := dynamism.Measure(one, o, trainQuietly)
		if err != nil {
			return err
		}
		figures := m.Figures(o)
		if err := writeDynamism(c.OutOrStdout(), figures); err != nil {
			return err
		}
	}
	return verdict(results)
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

func writeDynamism(out io.Writer, f dynamism.Figures) error {
	fmt.Fprintf(out, "%s, %s\n", f.Kind, f.Strength)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "cuts\tstep\timbalance\tbubble ratio\toverhead\tmoves\ttotal\tbalancing\t")
	for _, r := range f.Rows {
		fmt.Fprintf(t, "%s\t%.2f ms\t%.2f\t%.3f\t%.2f %%\t%d\t%.3fx\t%.3fx\t\n", r.Name, 1e3*r.Step, r.Imbalance, r.Bubble, 100*r.Overhead, r.Moves, r.Total, r.Speedup)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "ceiling %.3f, best contiguous %.3f, reached %.3f, paper %v\n", f.Ceiling, f.Possible, f.Reached(), f.Paper)
	return nil
}
