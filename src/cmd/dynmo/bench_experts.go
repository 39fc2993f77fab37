package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/dynamic/routing"
	"dynmo/src/input"
	"dynmo/src/nodebench"
	"dynmo/src/profile"
	"dynmo/src/study/experts"
)

// benchExperts returns the command that compares balancing layers with balancing experts.
func benchExperts(flags *benchFlags) *cobra.Command {
	o := experts.Options{Replicas: 8, Faster: 1}
	var only []string
	c := &cobra.Command{
		Use:   "experts COSTS...",
		Short: "Balancing layers against balancing experts, on recorded routing",
		Long: `Balancing layers against balancing the experts within a layer, by simulated steps
(clock=sim) of 8 stages, 32 microbatches and --replicas over which the experts of a layer
are spread: the fullest rank sets its time. Routing is that of trained models, recorded by
bench routing; COSTS are what profile wrote of models with as many experts, attention
and experts apart (model.grain=half).

Ways of sharing the work of a layer:
  equal loads          every expert has as many tokens: nothing to balance but the head
  fixed capacity       every expert computes as many tokens as the fullest of all layers
                       and microbatches has: one capacity factor, and none dropped
  adapted capacity     every expert computes its tokens
  placed, as many each experts lie where loads of the step before are as even as can be
                       found, as many on each rank (Tutel's way, with adapted capacity)
  placed freely        the same with any number on a rank

Each runs on the better of the cuts that never move (by blocks, by parameters) and with
layers moved after every step by partition and by diffusion, on what the step before
showed. Step, imbalance and bubble ratio are medians of the last steps; overhead is
the share of all time that measuring, deciding and moving layers took, with moves that
hide behind no work. Moves of experts between ranks take no time here, in their favour.

Speedups of the last table: DynMo, layers that move, over the best static cuts, both with
adapted capacity; Tutel, experts placed, over the same; DynMo over Tutel; both together
over Tutel, and over the static cuts. The paper's speedups stand beside them.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if o.Replicas < 1 || o.Replicas > 4096 {
				return usageError{fmt.Errorf("--replicas %d: want 1 to 4096", o.Replicas)}
			}
			if !(o.Faster > 0 && o.Faster <= 1e6) {
				return usageError{fmt.Errorf("--faster %v: want above 0, at most 1e6", o.Faster)}
			}
			if err := checkNames("only", only, routing.Names()); err != nil {
				return err
			}
			if len(only) == 0 {
				only = routing.Names()
			}
			tables, err := expertTables(args, only, o)
			if err != nil {
				return usageError{err}
			}
			return flags.experts(c, tables)
		},
	}
	c.Flags().IntVar(&o.Replicas, "replicas", o.Replicas, "over which the experts of a layer are spread, a divisor of them")
	c.Flags().Float64Var(&o.Faster, "faster", o.Faster, "times that devices are faster than the one of COSTS; messages, measuring and deciding take what they do")
	c.Flags().StringSliceVar(&only, "only", nil, "the only recordings: "+strings.Join(routing.Names(), ", "))
	return c
}

// expertTables simulates the recordings that some costs are of.
func expertTables(files, names []string, o experts.Options) (list []experts.Table, err error) {
	models := make(map[int]profile.Phase) // by experts of a layer
	for _, file := range files {
		n, costs, err := expertCosts(file)
		if err != nil {
			return nil, err
		}
		models[n] = costs
	}
	for _, name := range names {
		r, err := routing.Named(name)
		if err != nil {
			return nil, err
		}
		costs, ok := models[r.Experts]
		if !ok {
			continue
		}
		k, err := experts.NewCase(r, costs.Costs(), o)
		if err != nil {
			return nil, err
		}
		t, err := k.Table()
		if err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, nil
}

// expertCosts reads costs of a mixture of experts, and how many a layer has.
func expertCosts(file string) (n int, costs profile.Phase, err error) {
	text, err := input.Read(file, input.Records)
	if err != nil {
		return 0, costs, err
	}
	var shape struct{ Model string }
	if err := json.Unmarshal(text, &shape); err != nil {
		return 0, costs, fmt.Errorf("%s: %w", file, err)
	}
	c, err := config.Load("", append(strings.Fields(shape.Model), "dynamic.kind=moe"))
	if err != nil || !strings.Contains(shape.Model, "moe.experts=") {
		return 0, costs, fmt.Errorf("%s: costs of %q, want those of a mixture of experts (dynmo profile)", file, shape.Model)
	}
	series, err := profile.ReadSeries(file, bytes.NewReader(text), c.Layers())
	if err != nil {
		return 0, costs, err
	}
	return c.Moe.Experts, series[0], nil
}

// experts prints tables.
func (f *benchFlags) experts(c *cobra.Command, tables []experts.Table) error {
	if f.json {
		var list []nodebench.Result
		for _, t := range tables {
			list = append(list, expertResults(t)...)
		}
		return f.write(c, list)
	}
	out := c.OutOrStdout()
	for _, t := range tables {
		if err := writeExperts(out, t); err != nil {
			return err
		}
	}
	return writeSpeedups(out, tables)
}

// expertResults returns the figures of a case.
func expertResults(t experts.Table) (list []nodebench.Result) {
	name := strings.NewReplacer(" ", "_", ",", "")
	for _, r := range t.Rows {
		list = append(list, nodebench.Result{
			Name:  "experts/" + t.Name + "_" + name.Replace(r.Way.String()+"_"+r.Cuts) + "_step",
			Value: r.Step, Unit: "seconds", OK: true, Clock: "sim",
		})
	}
	return list
}

// writeExperts writes the runs of a case for people.
func writeExperts(out io.Writer, t experts.Table) error {
	mean, least, most := t.Spread()
	fmt.Fprintf(out, "\n%s: experts over %d replicas, whose fullest has %.2f times the mean load, %.2f to %.2f by block (clock=sim)\n", t.Name, t.Replicas, mean, least, most)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "within a layer\tcuts\tstep, s\timbalance\tbubble ratio\toverhead, %\tmoves")
	for _, r := range t.Rows {
		fmt.Fprintf(w, "%v\t%s\t%.2f\t%.2f\t%.3f\t%.2f\t%d\n", r.Way, r.Cuts, r.Step, r.Imbalance, r.Bubble, 100*r.Overhead, r.Moves)
	}
	return w.Flush()
}

// writeSpeedups writes what balancing is worth for people.
func writeSpeedups(out io.Writer, tables []experts.Table) error {
	fmt.Fprintf(out, "\nSpeedups (clock=sim)\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "routing\tDynMo\tceiling\tof it\tequal loads\tpaper\tTutel\tDynMo over Tutel\tpaper\tboth over Tutel\tboth\ttotal\tbubble ratio\toverhead, %")
	for _, t := range tables {
		s := t.Speedups()
		fmt.Fprintf(w, "%s\t%.2fx\t%.2fx\t%.2f\t%.2fx\t%s\t%.2fx\t%.2fx\t%s\t%.2fx\t%.2fx\t%.2fx\t%.2f to %.2f\t%.2f\n", t.Name,
			s.DynMo, s.Ceiling, s.DynMo/s.Ceiling, s.Equal, claim(t.Paper.Static), s.Tutel, s.OverTutel, claim(t.Paper.Tutel), s.BothOverTutel, s.Both,
			s.Total, s.Before, s.After, 100*s.Overhead)
	}
	return w.Flush()
}

// claim writes a speedup of the paper.
func claim(x float64) string {
	if x == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", x)
}
