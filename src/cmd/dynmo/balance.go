package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"dynmo/src/balance"
	"dynmo/src/files"
	"dynmo/src/partition"
)

// balancers are the balancers that work on costs alone.
var balancers = []string{"partition", "diffusion", "uniform", "diffusion-paper"}

// paperSweeps bounds the sweeps of the paper's diffusion, which might improve for ever by less and
// less. It mostly ends after a few sweeps.
const paperSweeps = 1000

// balanceCommand returns the command that cuts a chain of given costs.
func balanceCommand() *cobra.Command {
	var file, balancer string
	var stages int
	var asJSON bool
	c := &cobra.Command{
		Use:   "balance --loads FILE --stages P",
		Short: "Cut a chain of layers with given costs over stages",
		Long: `Cut a chain of layers with given costs over stages.

FILE is JSON: {"seconds": [by layer], "bytes": [by layer], "capacity_bytes": N,
"fixed_seconds": [by stage]}; all but seconds may be left out. Diffusion starts
from uniform cuts. The optimum stands beside what the balancer found.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			data, err := files.Read(file, files.Loads)
			if err != nil {
				return usageError{fmt.Errorf("--loads: %w", err)}
			}
			problem, err := balance.ParseLoads(file, data, stages)
			if err != nil {
				return usageError{err}
			}
			a, err := decide(problem, balancer)
			if err != nil {
				return err
			}
			return tellAnswer(c, a, asJSON)
		},
	}
	c.Flags().StringVar(&file, "loads", "", "JSON file with the costs; - is standard input")
	c.Flags().IntVar(&stages, "stages", 0, "number of stages, at least 1")
	c.Flags().StringVar(&balancer, "balancer", balancers[0], "one of "+strings.Join(balancers, ", "))
	c.Flags().BoolVar(&asJSON, "json", false, "answer in JSON")
	require(c, "loads", "stages")
	return c
}

// answer is the output of dynmo balance. Times are in seconds.
type answer struct {
	Balancer     string              `json:"balancer"`
	Cuts         partition.Partition `json:"cuts"`            // null if a stage's layers are not contiguous
	Owner        []int               `json:"owner,omitempty"` // by layer, if layers are not contiguous
	StageSeconds []float64           `json:"stage_seconds"`
	Bottleneck   float64             `json:"bottleneck"`
	LowerBound   float64             `json:"lower_bound"` // of the bottleneck, for any cuts
	Optimum      float64             `json:"optimum"`     // bottleneck of the best contiguous cuts
	Gap          *float64            `json:"gap"`         // bottleneck/optimum - 1; null if that is not finite
	Optimal      bool                `json:"optimal"`
	Decide       float64             `json:"decide_seconds"`
}

// decide cuts the chain with a balancer, and compares the cuts with the optimum.
func decide(p balance.Problem, balancer string) (answer, error) {
	a := answer{Balancer: balancer}
	optimum, err := balance.Partition(p)
	if err != nil {
		return a, err
	}
	free := p
	free.Capacity = nil // diffusion may start from cuts that do not fit
	start, err := balance.Uniform(free)
	if err != nil {
		return a, err
	}
	began := time.Now()
	var r balance.Result
	switch balancer {
	case "partition":
		r, err = balance.Partition(p)
	case "uniform":
		r, err = balance.Uniform(p)
	case "diffusion":
		r, _, err = balance.Diffusion(p, start.Cuts, balance.DiffusionOptions{})
	case "diffusion-paper":
		var s balance.Scatter
		s, err = balance.DiffusionPaper(p, start.Cuts, paperSweeps)
		r.StageSeconds, r.Bottleneck = s.StageSeconds, s.Bottleneck
		if s.Contiguous {
			r.Cuts = cutsOf(s)
		} else {
			a.Owner = s.Owner
		}
	default:
		return a, usageError{fmt.Errorf("--balancer %q, want one of %s", balancer, strings.Join(balancers, ", "))}
	}
	a.Decide = time.Since(began).Seconds()
	if err != nil {
		return a, fmt.Errorf("%s: %w", balancer, err)
	}
	a.Cuts, a.StageSeconds, a.Bottleneck = r.Cuts, r.StageSeconds, r.Bottleneck
	a.Optimum = optimum.Bottleneck
	a.LowerBound = min(optimum.LowerBound, a.Bottleneck)
	a.Optimal = a.Cuts != nil && a.Bottleneck == a.Optimum
	if gap := balance.Gap(a.Bottleneck, a.Optimum); !math.IsInf(gap, 0) {
		a.Gap = &gap
	}
	return a, nil
}

// cutsOf returns the cuts of a contiguous assignment.
func cutsOf(s balance.Scatter) partition.Partition {
	cuts := make(partition.Partition, len(s.StageSeconds)+1)
	for stage := range s.StageSeconds {
		cuts[stage+1], _ = slices.BinarySearch(s.Owner, stage+1)
	}
	return cuts
}

// print writes the answer for people.
func (a answer) print(w io.Writer) error {
	var b strings.Builder
	layers := func(stage int) string {
		if a.Cuts != nil {
			lo, hi := a.Cuts.Range(stage)
			if lo == hi {
				return "none"
			}
			return fmt.Sprintf("%d to %d", lo, hi-1)
		}
		var own []string
		for l, s := range a.Owner {
			if s == stage {
				own = append(own, strconv.Itoa(l))
			}
		}
		return strings.Join(own, " ")
	}
	fmt.Fprintf(&b, "%-6s %-14s %s\n", "stage", "seconds", "layers")
	for s, seconds := range a.StageSeconds {
		fmt.Fprintf(&b, "%-6d %-14.6g %s\n", s, seconds, layers(s))
	}
	fmt.Fprintf(&b, "\nbottleneck  %.6g s\noptimum     %.6g s\nlower bound %.6g s\n", a.Bottleneck, a.Optimum, a.LowerBound)
	switch {
	case a.Optimal:
		b.WriteString("gap         0 (optimal)\n")
	case a.Gap != nil:
		fmt.Fprintf(&b, "gap         %.2f %%\n", 100**a.Gap)
	}
	if a.Cuts == nil {
		b.WriteString("layers lie scattered: no pipeline runs them in this order\n")
	}
	fmt.Fprintf(&b, "decided in  %.3g s\n", a.Decide)
	_, err := io.WriteString(w, b.String())
	return err
}
