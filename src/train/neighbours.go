package train

import "dynmo/src/comm"

// neighbours carries diffusion's messages: balance.Link over the stages of a
// replica.
type neighbours struct{ stages *comm.Group }

// Exchange sends out to a neighbouring stage and returns what it sends.
func (n neighbours) Exchange(stage int, out []float64) ([]float64, error) {
	if err := n.stages.SendBytes(stage, comm.TagBalance, comm.Pack(out)); err != nil {
		return nil, err
	}
	b, err := n.stages.RecvBytes(stage, comm.TagBalance)
	if err != nil {
		return nil, err
	}
	return comm.Unpack[float64](b), nil
}

// Max overwrites every value with its largest over all stages.
func (n neighbours) Max(values []float64) error {
	return comm.Allreduce(n.stages, values, func(a, b float64) float64 { return max(a, b) })
}
