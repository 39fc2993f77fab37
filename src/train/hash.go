package train

import (
	"crypto/sha256"
	"encoding/hex"
)

// hash returns the SHA-256 of the hashes of all layers in chain order: one
// number for the whole model's state, whatever the layout. Collective.
func (r *Rank) hash() (string, error) {
	var mine []byte
	for _, l := range r.stage.Layers {
		sum, err := l.Hash()
		if err != nil {
			return "", err
		}
		mine = append(mine, sum[:]...)
	}
	all, err := r.stages.Allgather(mine)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, stage := range r.owners(r.now) {
		h.Write(all[stage][:sha256.Size])
		all[stage] = all[stage][sha256.Size:]
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
