package policy

import (
	"cmp"
	"encoding/json"

	"dynmo/src/balance"
	"dynmo/src/comm"
	"dynmo/src/partition"
)

// Neighbours runs diffusion (balance.Diffuse) among the stages of replica 0, by messages between
// neighbouring stages. Only stage 0 knows the costs of layers, and only stage 0 has a Balancer. After
// each step stage 0 calls Balancer.Decide, then Conclude with the result as text. The other stages of
// replica 0 call Conclude(nil) at once, and in it take part in the diffusion of stage 0's Decide.
type Neighbours struct {
	Stages *comm.Group // the stages of this replica; the rank in the group is the stage
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

// Conclude returns stage 0's text on all stages. Stages other than 0 ignore their own text: they serve
// the diffusions that stage 0 begins, until its text arrives. An error says that a message failed.
// Collective over the stages.
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

// Exchange sends the numbers in out to a neighbouring stage and returns the neighbour's numbers. Both
// stages must call Exchange. Only balance.Diffuse calls Exchange and Max (see balance.Link).
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

// Max replaces every value by its largest over all stages. Collective over the stages.
func (n *Neighbours) Max(values []float64) error {
	err := comm.Allreduce(n.Stages, values, func(a, b float64) float64 { return max(a, b) })
	n.failed = cmp.Or(n.failed, err)
	return err
}
