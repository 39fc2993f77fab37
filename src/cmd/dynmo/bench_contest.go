package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"dynmo/src/nodebench"
	"dynmo/src/study"
	"dynmo/src/study/contest"
)

// contests is how much auto and diffusion are held against others.
type contests struct {
	instances, cases, chains int
	seed                     uint64
}

// mostCases bounds the time of a contest to hours.
const mostCases = 100_000

// addFlags adds the flags that say how much.
func (o *contests) addFlags(c *cobra.Command) {
	c.Flags().IntVar(&o.instances, "instances", contest.AllInstances, fmt.Sprintf("steps on which auto is held against heuristics, up to %d", contest.AllInstances))
	c.Flags().IntVar(&o.cases, "cases", contest.AllCases, "small steps on which auto is held against the optimum")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "seed of the costs that instances and cases draw")
	c.Flags().IntVar(&o.chains, "chains", 10, "chains of each family and size on which diffusion is held against the optimum")
}

// check refuses what cannot be done.
func (o *contests) check() error {
	for _, f := range []struct {
		name       string
		value, max int
	}{{"instances", o.instances, contest.AllInstances}, {"cases", o.cases, mostCases}, {"chains", o.chains, mostCases}} {
		if f.value < 0 || f.value > f.max {
			return usageError{fmt.Errorf("--%s %d: want 0 to %d", f.name, f.value, f.max)}
		}
	}
	return nil
}

// comparison is what a contest says: makespans or bottlenecks over those of others. A
// limit of 0 is none.
type comparison struct {
	name, against, where string
	steps, open          int
	mean, p95, max       limited
	worst                string
}

// limited is a ratio with the most that it should be.
type limited struct {
	over, most float64
	below      bool // whether it should be less than that
}

func (l limited) ok() bool {
	return l.most == 0 || l.over < l.most || l.over == l.most && !l.below
}

// run holds auto and diffusion against others.
func (o *contests) run() ([]comparison, error) {
	list := comparisons("heuristics", contest.Summarize(contest.Heuristics(o.instances, o.seed), contest.Caps),
		limited{most: 1, below: true}, limited{most: 1.01})
	list = append(list, comparisons("optimum", contest.Summarize(contest.Optima(o.cases, o.seed), nil),
		limited{most: 1.002}, limited{most: 1.05})...)
	if o.chains == 0 {
		return list, nil
	}
	gaps, err := study.DiffusionGaps(o.chains)
	if err != nil {
		return nil, err
	}
	for _, g := range gaps {
		list = append(list, comparison{
			name: "diffusion", against: "optimum", where: g.Family, steps: g.Chains,
			p95: limited{over: g.P95, most: 1.02}, max: limited{over: g.Max, most: 1.06},
		})
	}
	return list, nil
}

// comparisons returns those of auto. What is to be reached is meant for all steps
// together.
func comparisons(against string, summaries []contest.Summary, mean, most limited) []comparison {
	var list []comparison
	for i, s := range summaries {
		one := comparison{
			name: "auto", against: against, where: s.Where, steps: s.Steps, open: s.Open, mean: limited{over: s.Mean}, max: limited{over: s.Max},
			worst: s.Worst.String(),
		}
		if i == len(summaries)-1 {
			one.mean, one.max = mean, most
			one.mean.over, one.max.over = s.Mean, s.Max
		}
		list = append(list, one)
	}
	return list
}

// results returns the figures of a comparison, over 1 where auto or diffusion is the
// better: what it is held against over its own. Where an optimum is not known they
// would be wrong.
func (s comparison) results() []nodebench.Result {
	var list []nodebench.Result
	for _, figure := range []struct {
		name string
		limited
	}{{"mean", s.mean}, {"p95", s.p95}, {"max", s.max}} {
		if figure.over == 0 {
			continue
		}
		r := nodebench.Result{
			Name:  "schedule/" + strings.NewReplacer(" ", "_", "/", "_").Replace(s.name+"_"+s.against+"_"+s.where+"_"+figure.name),
			Value: 1 / figure.over, Unit: "ratio", OK: figure.ok() && s.open == 0, Clock: "sim", Wrong: s.open,
		}
		if figure.most > 0 {
			r.Reach = 1 / figure.most
		}
		list = append(list, r)
	}
	return list
}

// verdict returns PASS, FAIL, INVALID or "-", if there is nothing to reach.
func (s comparison) verdict() string {
	verdict := "-"
	for _, r := range s.results() {
		switch v := r.Verdict(); {
		case v == "INVALID", v == "FAIL", v == "PASS" && verdict == "-":
			verdict = v
		}
		if verdict == "INVALID" || verdict == "FAIL" {
			return verdict
		}
	}
	return verdict
}

// cell returns a ratio and what it should be, "1.118 (1.01)".
func (l limited) cell() string {
	switch {
	case l.over == 0:
		return "-"
	case l.most == 0:
		return fmt.Sprintf("%.4f", l.over)
	case l.below:
		return fmt.Sprintf("%.4f (<%g)", l.over, l.most)
	}
	return fmt.Sprintf("%.4f (%g)", l.over, l.most)
}

// writeContests writes comparisons for people, nothing if there are none.
func writeContests(out io.Writer, list []comparison) error {
	if len(list) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tover\twhere\tnumber\tmean\tp95\tmax\tverdict\tthe largest")
	for _, s := range list {
		number := strconv.Itoa(s.steps)
		if s.open > 0 {
			number += fmt.Sprintf(", %d open", s.open)
		}
		worst := s.worst
		if worst == "" {
			worst = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n",
			s.name, s.against, s.where, number, s.mean.cell(), s.p95.cell(), s.max.cell(), s.verdict(), worst)
	}
	return t.Flush()
}
