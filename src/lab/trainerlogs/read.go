package trainerlogs

import (
	"fmt"

	"dynmo/src/cost"
)

// Source is a kind of file that has times of layers.
type Source struct {
	Flag, Usage string
	NeedsLayout bool
	Ignored     []string // flags of a run that have no effect on it
	Read        func(path string, r Run) (Costs, error)
}

// Sources are all kinds of files, with the flags that name them.
var Sources = []Source{
	fitted("megatron-log", "output of Megatron-LM with --timing-log-level 2 --timing-log-option all", readMegatron, "order"),
	fitted("torch-trace", "folder with one Chrome trace of PyTorch's profiler for each rank, json or json.gz", readTraces, "order"),
	fitted("zero-bubble-log", "output of zero-bubble-pipeline-parallelism", readZeroBubble, "microbatches"),
	{Flag: "csv", Usage: "table with a line for each layer: name,forward_ms,backward_ms[,weight_ms,parameter_bytes,activation_bytes]", Read: readCSV, Ignored: []string{"order", "microbatches"}},
	{Flag: "hook", Usage: "lines that the hook of dynmo help trainers prints", Read: readHook, Ignored: []string{"order", "microbatches"}},
}

// fitted is a source with times of parts of the model. Those of layers follow from the layout.
func fitted(flag, usage string, read func(path string, s shape) (measured, error), ignored ...string) Source {
	return Source{Flag: flag, Usage: usage, NeedsLayout: true, Ignored: ignored, Read: func(path string, r Run) (Costs, error) {
		s, err := r.shape()
		if err != nil {
			return Costs{}, err
		}
		m, err := read(path, s)
		if err != nil {
			return Costs{}, err
		}
		c, err := fit(m, s)
		if err == nil {
			err = cost.Phase{Table: c.Table}.Check(len(c.Table.Layers))
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
		return c, err
	}}
}
