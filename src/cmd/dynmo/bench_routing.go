package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"dynmo/src/device"
	"dynmo/src/dynamic/routing"
	"dynmo/src/kernel"
	"dynmo/src/nodebench"
	"dynmo/src/store"
)

// benchRouting returns the command that records where the tokens of a trained model go.
func benchRouting(flags *benchFlags) *cobra.Command {
	var file target
	slots, path := nodebench.Slots, ""
	c := &cobra.Command{
		Use:   "routing RUN_DIR -o FILE",
		Short: "Where tokens go in a trained mixture of experts",
		Long: `Where tokens go in a trained mixture of experts: the newest checkpoint of a run, on data
that it trained on or other text, forward alone. FILE has the tokens by block, slot and expert, a slot
being a microbatch of eight replicas; it is what src/dynamic/routing/recorded holds for
simulated runs and bench experts.

The figures tell whether the routers have learned, beside the model as it began: the
entropy of a token's expert in bits, of all tokens and among tokens of one kind (what
knowing the byte leaves open), the share of a token's weights that its first expert
has, and how full the fullest expert of a slot is. They are means over the blocks.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if slots < 1 || slots > mostBenchSteps {
				return usageError{fmt.Errorf("--slots %d: want 1 to %d", slots, mostBenchSteps)}
			}
			if err := file.check(); err != nil {
				return err
			}
			from, _, err := store.Newest(args[0])
			if err != nil {
				return usageError{err}
			}
			name := filepath.Base(args[0])
			if path != "" {
				name += "-other"
			}
			choices, err := nodebench.NewRouting(from, name, path, slots, nodebench.SlotReplicas)
			if err != nil {
				return usageError{err}
			}
			var recorded routing.Recording
			results, err := flags.measure(func(k kernel.Backend, dev device.Device) (list []nodebench.Result, err error) {
				recorded, list, err = choices.Record(k, dev)
				return list, err
			})
			if err != nil {
				return err
			}
			if err := file.write(c, func(out io.Writer) error { return recorded.Write(out) }); err != nil {
				return err
			}
			if file.standard() {
				c.SetOut(c.ErrOrStderr())
			}
			return flags.report(c, results)
		},
	}
	file.required(c, "file to write; - is standard output, which has no figures then")
	c.Flags().IntVar(&slots, "slots", slots, "microbatches of eight replicas that are recorded")
	c.Flags().StringVar(&path, "data", path, "text or `DIR` of .md, .html and .txt, or a token file, to record on, in place of what the run trained on: as a training that goes on with other data begins")
	return c
}
