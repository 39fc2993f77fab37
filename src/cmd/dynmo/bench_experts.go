package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/config"
	"dynmo/src/dynamic/routing"
	"dynmo/src/kind/moe"
	"dynmo/src/nodebench"
	"dynmo/src/profile"
	"dynmo/src/study/dynamism"
	"dynmo/src/study/experts"
)

// benchExperts returns the command that compares balancing layers with balancing experts.
func benchExperts(flags *benchFlags) *cobra.Command {
	o := experts.Options{Replicas: 8, Faster: 1}
	var only []string
	var speedups bool
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

The last two tables have speedups over adapted capacity on the best static cuts: of layers
that move (DynMo), beside what they gain where loads are equal, what the best cuts would and
the ceiling of layers that could be cut anywhere, of which 0.95 is to be reached with at most 5 % overhead; total is over equal loads on
static cuts; of experts placed (Tutel), and of both; then of DynMo and of both over Tutel.
The paper's stand beside them.`,
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
			return flags.experts(c, tables, speedups)
		},
	}
	c.Flags().IntVar(&o.Replicas, "replicas", o.Replicas, "over which the experts of a layer are spread, a divisor of them")
	c.Flags().Float64Var(&o.Faster, "faster", o.Faster, "times that devices are faster than the one of COSTS; messages, measuring and deciding take what they do")
	c.Flags().StringSliceVar(&only, "only", nil, "the only recordings: "+strings.Join(routing.Names(), ", "))
	c.Flags().BoolVar(&speedups, "speedups", false, "the last two tables alone")
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
		if _, twice := models[n]; twice {
			return nil, fmt.Errorf("%s: costs of %d experts, as those of a file before it: want one of each", file, n)
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
	if len(list) == 0 {
		return nil, fmt.Errorf("costs of %v experts: none of %s has as many", slices.Sorted(maps.Keys(models)), strings.Join(names, ", "))
	}
	return list, nil
}

// expertCosts reads costs of a mixture of experts, and how many a layer has.
func expertCosts(file string) (n int, costs profile.Phase, err error) {
	series, _, err := profile.OpenSeries(file, 0)
	if err != nil {
		return 0, costs, err
	}
	shape := series[0].Model
	c, err := config.Load("", append(strings.Fields(shape), "dynamic.kind=moe"))
	if err != nil || !strings.Contains(shape, "moe.experts=") {
		return 0, costs, fmt.Errorf("%s: costs of %q, want those of a mixture of experts (dynmo profile)", file, shape)
	}
	return config.Of[moe.Settings](c).Experts, series[0], nil
}

// experts prints tables, or their speedups alone, and fails where these are too low.
func (f *benchFlags) experts(c *cobra.Command, tables []experts.Table, speedups bool) error {
	var list []nodebench.Result
	for _, t := range tables {
		list = append(list, expertResults(t)...)
	}
	if f.json {
		return f.report(c, list)
	}
	out := c.OutOrStdout()
	for _, t := range tables {
		if speedups {
			break
		}
		if err := writeExperts(out, t); err != nil {
			return err
		}
	}
	if err := writeSpeedups(out, tables); err != nil {
		return err
	}
	return verdict(list)
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
	s := t.Speedups()
	add := func(figure string, value float64, unit string, reach float64) {
		list = append(list, nodebench.Result{Name: "experts/" + t.Name + "_" + figure, Value: value, Unit: unit, Reach: reach, OK: value >= reach, Clock: "sim"})
	}
	add("balancing_speedup", s.DynMo, "ratio", 0)
	add("over_tutel", s.OverTutel, "ratio", 0)
	add("both_over_tutel", s.BothOverTutel, "ratio", 0)
	add("paper", t.Paper.Static, "ratio", 0)
	add("paper_over_tutel", t.Paper.Tutel, "ratio", 0)
	add("of_ceiling", s.Reached(), "ratio", dynamism.ReachCeiling)
	add("not_balancing", 1-s.Overhead, "share", 1-dynamism.EveryOverhead)
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
	fmt.Fprintf(out, "\nLayers that move over the best static cuts (clock=sim)\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "routing\tDynMo\tequal loads\tbest cuts\tceiling\tof it (%g)\tpaper\ttotal\tbubble ratio\toverhead, %% (%g)\n", dynamism.ReachCeiling, 100*dynamism.EveryOverhead)
	for _, t := range tables {
		s := t.Speedups()
		fmt.Fprintf(w, "%s\t%.2fx\t%.2fx\t%.2fx\t%.2fx\t%.2f %s\t%s\t%.2fx\t%.2f to %.2f\t%.2f %s\n", t.Name,
			s.DynMo, s.Equal, s.Possible, s.Ceiling, s.Reached(), passed(s.Reached() >= dynamism.ReachCeiling), claim(t.Paper.Static),
			s.Total, s.Before, s.After, 100*s.Overhead, passed(s.Overhead <= dynamism.EveryOverhead))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nBeside experts that are placed, Tutel's way (clock=sim)\n")
	fmt.Fprintln(w, "routing\tadapted over fixed\tTutel\tplaced freely\tboth\tDynMo over Tutel\tpaper\tboth over Tutel")
	for _, t := range tables {
		s := t.Speedups()
		fmt.Fprintf(w, "%s\t%.2fx\t%.2fx\t%.2fx\t%.2fx\t%.2fx\t%s\t%.2fx\n", t.Name, s.Adapted, s.Tutel, s.Free, s.Both, s.OverTutel, claim(t.Paper.Tutel), s.BothOverTutel)
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
