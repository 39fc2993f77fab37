package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"dynmo/src/cost"
	"dynmo/src/lab/modelcost"
	"dynmo/src/lab/roofline"
	"dynmo/src/lab/trainerlogs"
)

// configEstimate is the input of dynmo costs for a model that nobody has measured.
type configEstimate struct {
	config, gpu string
	work        modelcost.Work
}

// flags adds the flags of the estimate to a command.
func (e *configEstimate) flags(c *cobra.Command) {
	c.Flags().StringVar(&e.config, "config-json", "", "config.json of a model on Hugging Face, with --estimate")
	c.Flags().StringVar(&e.gpu, "estimate", "", "GPU that is not at hand, one of "+strings.Join(roofline.Names(), ", "))
	c.Flags().IntVar(&e.work.Sequence, "sequence", 0, "tokens of a sequence")
	c.Flags().IntVar(&e.work.Batch, "microbatch-size", 1, "sequences of a microbatch")
	c.Flags().IntVar(&e.work.Tensor, "tensor-parallel", 1, "ranks that share the products of every layer")
	c.Flags().IntVar(&e.work.Experts, "expert-parallel", 1, "ranks that share the experts of every layer")
	c.Flags().BoolVar(&e.work.Half, "half", false, "a row for each half of a block: attention and MLP")
}

// onlyBesideConfig refuses flags of an estimate without --config-json.
func (e *configEstimate) onlyBesideConfig(c *cobra.Command) error {
	for _, flag := range []string{"estimate", "sequence", "microbatch-size", "tensor-parallel", "expert-parallel", "half"} {
		if c.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s: has no effect without --config-json", flag)}
		}
	}
	return nil
}

// write writes the estimated costs. It refuses flags of logs.
func (e *configEstimate) write(c *cobra.Command, out *target) error {
	logs := []string{"layout", "stages", "chunks", "microbatches", "order"}
	for _, s := range trainerlogs.Sources {
		logs = append(logs, s.Flag)
	}
	for _, flag := range logs {
		if c.Flags().Changed(flag) {
			return usageError{fmt.Errorf("--%s: has no effect beside --config-json, which reads no log", flag)}
		}
	}
	if err := out.check(); err != nil {
		return err
	}
	table, err := e.table()
	if err != nil {
		return err
	}
	if err := out.write(c, func(w io.Writer) error { return writeCosts(w, table) }); err != nil || out.standard() {
		return err
	}
	return tellAnswer(c, costsAnswer{trainerlogs.Costs{Table: table, Kinds: trainerlogs.KindsOf(table.Layers)}}, false)
}

// table returns the estimated costs.
func (e *configEstimate) table() (cost.Table, error) {
	if e.gpu == "" {
		return cost.Table{}, usageError{errors.New("--config-json: nothing is measured, want --estimate with a GPU beside it")}
	}
	if err := cmp.Or(checkRange("sequence", e.work.Sequence, 1, 1<<24), checkRange("microbatch-size", e.work.Batch, 1, 1<<12),
		checkRange("tensor-parallel", e.work.Tensor, 1, 1<<10), checkRange("expert-parallel", e.work.Experts, 1, 1<<12)); err != nil {
		return cost.Table{}, err
	}
	gpu, err := roofline.Known(e.gpu)
	if err == nil && gpu.Scores {
		err = fmt.Errorf("%s has products of float32, want a GPU with bfloat16", gpu.Name)
	}
	if err != nil {
		return cost.Table{}, usageError{fmt.Errorf("--estimate: %w", err)}
	}
	m, err := modelcost.Read(e.config)
	if err != nil {
		return cost.Table{}, usageError{fmt.Errorf("--config-json: %w", err)}
	}
	layers, err := m.Layers(e.work)
	if err != nil {
		return cost.Table{}, usageError{fmt.Errorf("--config-json: %s: %w", e.config, err)}
	}
	return modelcost.Estimate(layers, gpu), nil
}
