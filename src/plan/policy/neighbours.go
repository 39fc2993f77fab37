package policy

import (
	"dynmo/src/comm"
	"dynmo/src/profile"
)

// Neighbours carries the messages of diffusion between the stages of a replica, which a
// profiler knows.
type Neighbours struct{ *profile.Profiler }

// Stage returns the stage of this rank.
func (n Neighbours) Stage() int { return n.Stages.Rank() }

// Exchange sends out to a neighbouring stage and returns what it sends.
func (n Neighbours) Exchange(stage int, out []float64) ([]float64, error) {
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
func (n Neighbours) Max(values []float64) error {
	return comm.Allreduce(n.Stages, values, func(a, b float64) float64 { return max(a, b) })
}
