package policy

import (
	"cmp"
	"encoding/json"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/partition"
)

// Neighbours lets the stages of the first replica diffuse by messages between neighbours. The
// first stage, which alone knows what layers cost, decides and calls the others. Every message
// to them begins with a byte: whether it calls or concludes.
type Neighbours struct {
	Stages *comm.Group // of this replica: rank = stage
	failed error       // of a message between neighbours
}

const (
	calls byte = iota
	concludes
)

// call is what the first stage calls the others with.
type call struct {
	Stages  []balance.Stage // what each of them knows of itself
	Options balance.DiffusionOptions
}

// diffuse calls all stages and diffuses with them.
func (n *Neighbours) diffuse(problem balance.Problem, present partition.Partition, o balance.DiffusionOptions) (partition.Partition, balance.Descent, error) {
	c := call{Options: o}
	for stage := range problem.Stages {
		c.Stages = append(c.Stages, problem.Stage(present, stage))
	}
	text, err := json.Marshal(c)
	if err == nil {
		_, err = n.Stages.Bcast(0, append([]byte{calls}, text...))
	}
	if err != nil {
		return nil, balance.Descent{}, err
	}
	return balance.Diffuse(c.Stages[0], n, o)
}

// Conclude returns what the first stage concludes, which gives it, on all stages. Until then the
// others diffuse whenever they are called. Collective over the stages.
func (n *Neighbours) Conclude(text []byte) ([]byte, error) {
	for {
		got, err := n.Stages.Bcast(0, append([]byte{concludes}, text...))
		if err != nil || got[0] == concludes {
			return got[min(1, len(got)):], err
		}
		var c call
		if err := json.Unmarshal(got[1:], &c); err != nil {
			return nil, err
		}
		// The first stage reports the result, or that no cuts fit.
		_, _, _ = balance.Diffuse(c.Stages[n.Stages.Rank()], n, c.Options)
		if n.failed != nil {
			return nil, n.failed
		}
	}
}

// Exchange sends out to a neighbouring stage and returns the neighbour's numbers.
func (n *Neighbours) Exchange(stage int, out []float64) (in []float64, err error) {
	defer func() { n.failed = cmp.Or(n.failed, err) }()
	if err := n.Stages.SendBytes(stage, comm.TagBalance, comm.Pack(out)); err != nil {
		return nil, err
	}
	b, err := n.Stages.RecvBytes(stage, comm.TagBalance)
	if err != nil {
		return nil, err
	}
	return comm.Unpack[float64](b), nil
}

// Max overwrites every value with its largest over all stages.
func (n *Neighbours) Max(values []float64) error {
	err := comm.Allreduce(n.Stages, values, func(a, b float64) float64 { return max(a, b) })
	n.failed = cmp.Or(n.failed, err)
	return err
}
