package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"dynmo/src/checkpoint"
	"dynmo/src/kind/moe"
)

func ckptSplit() *cobra.Command {
	var made target
	s := moe.Split{Deviation: 0.02}
	router, step := "linear", -1
	c := &cobra.Command{
		Use:   "split RUN_DIR|CHECKPOINT|FILE|HF_DIR -o FILE",
		Short: "Make a mixture of experts of a dense LLaMA: cut its MLPs into experts",
		Long: `Make a dynmo weights file of a dense LLaMA whose MLPs are cut into experts, with new routers
(LLaMA-MoE, Zhu et al. 2024). It is for model.weights of a run with dynamic.kind = "moe". FROM
is a run's model, a weights file or a Hugging Face directory. Experts have equal numbers of
the MLP's channels, drawn by --seed or taken --in-order. The output of an expert is multiplied
by --scale and by the router's weight; a token's weights add up to 1. With --scale = --experts
the chosen experts stand for all; LLaMA-MoE has --experts / --top. With --top = --experts and
--deviation 0 the model equals the dense model. Memory holds the MLP of a block.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if router != "linear" && router != "mlp" {
				return usageError{fmt.Errorf("--router %q, want linear or mlp", router)}
			}
			s.Squashed = router == "mlp"
			if !c.Flags().Changed("scale") {
				s.Scale = float64(s.Count)
			}
			if err := made.check(); err != nil {
				return err
			}
			dense, err := openDense(c, args[0], step)
			if err != nil {
				return usageError{err}
			}
			defer dense.Close()
			shape, by, err := s.Plan(dense.Config.Model)
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", args[0], err)}
			}
			w, err := dense.Derive(shape, by)
			if err != nil {
				return usageError{fmt.Errorf("%s: %w", args[0], err)}
			}
			return made.write(c, w.Write)
		},
	}
	made.required(c, "weights file to write; - is standard output")
	c.Flags().IntVar(&s.Count, "experts", 0, "experts of a block; divides the channels of an MLP")
	c.Flags().IntVar(&s.Top, "top", 0, "experts that a token goes to")
	c.Flags().Float64Var(&s.Scale, "scale", 0, "moe.scale: times the router's weights (default --experts)")
	c.Flags().StringVar(&router, "router", router, "moe.router: linear, or mlp, two matrices with tanh between")
	c.Flags().BoolVar(&s.InOrder, "in-order", false, "experts are channels in their order, not drawn")
	c.Flags().Float64Var(&s.Deviation, "deviation", s.Deviation, "of the routers' new weights")
	c.Flags().Uint64Var(&s.Seed, "seed", 0, "of the channels that are drawn, and of the routers")
	c.Flags().IntVar(&step, "step", step, "of a run, the checkpoint after this number of steps (default the newest)")
	require(c, "experts", "top")
	return c
}

// openDense opens a Hugging Face directory, or any other origin with openOrigin.
func openDense(c *cobra.Command, from string, step int) (*checkpoint.Weights, error) {
	if _, err := os.Stat(filepath.Join(from, checkpoint.ConfigFile)); err == nil && step < 0 {
		w, err := checkpoint.OpenHuggingFace(from)
		if err == nil {
			w.Watch(barOf(c).Show)
		}
		return w, err
	}
	o, err := openOrigin(c, from, step)
	if err != nil {
		return nil, err
	}
	return o.weights, refuseOwn(o.weights)
}
