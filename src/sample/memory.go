package sample

import (
	"golang.org/x/sys/unix"

	"dynmo/src/model"
	"dynmo/src/tensor"
)

// room returns memory for each of weights. All lie in one span of huge pages where the
// system has them: a token reads every weight, and with small pages it waits for their
// addresses too.
func room(weights []model.Weight) [][]float32 {
	total := int64(0)
	for _, w := range weights {
		total += w.Bytes() / 4
	}
	memory := make([]float32, total)
	_ = unix.Madvise(tensor.Of[byte](tensor.From(memory)), unix.MADV_HUGEPAGE) // a kernel without them works all the same
	parts := make([][]float32, len(weights))
	for i, w := range weights {
		n := w.Bytes() / 4
		parts[i], memory = memory[:n:n], memory[n:]
	}
	return parts
}
