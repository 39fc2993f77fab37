package trainerlogs

import (
	"fmt"

	"dynmo/src/cost"
)

// Source is a kind of file that has times of layers.
type Source struct {
	Flag, Usage string
	NeedsLayout bool
	Read        func(path string, r Run) (Costs, error)
}

// Sources are all kinds of files, with the flags that name them.
var Sources = []Source{
	fitted("megatron-log", "output of Megatron-LM with --timing-log-level 2 --timing-log-option all", readMegatron),
	fitted("torch-trace", "folder with one Chrome trace of PyTorch's profiler for each rank, json or json.gz", readTraces),
	fitted("zero-bubble-log", "output of zero-bubble-pipeline-parallelism", readZeroBubble),
	{Flag: "csv", Usage: "table with a line for each layer: name,forward_ms,backward_ms[,weight_ms,parameter_bytes,activation_bytes]", Read: readCSV},
	{Flag: "hook", Usage: "lines that the hook of dynmo help trainers prints", Read: readHook},
}

// fitted is a source with times of parts of the model. Those of layers follow from the layout.
func fitted(flag, usage string, read func(path string, s shape) (measured, error)) Source {
	return Source{Flag: flag, Usage: usage, NeedsLayout: true, Read: func(path string, r Run) (Costs, error) {
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
