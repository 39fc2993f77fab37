package nodebench

import (
	"os"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/model"
)

// Figures of a small model: none is wrong, and nothing is left behind.
func TestImport(t *testing.T) {
	dir := t.TempDir()
	c := model.Config{Family: "llama", Blocks: 1, Hidden: 8, Heads: 2, KeyValueHeads: 1, Intermediate: 12, Sequence: 4, Vocab: 11, NormEps: 1e-5, Rope: model.Rope{Base: 1e4}}
	results, err := Import(devcpu.New(device.NewWall()), c, dir, 1)
	expect.OK(t, err)
	for _, r := range results {
		if r.Wrong > 0 || r.Value <= 0 {
			t.Errorf("%+v", r)
		}
	}
	left, err := os.ReadDir(dir)
	expect.OK(t, err)
	if len(results) != 5 || len(left) > 0 {
		t.Errorf("%d figures, left behind: %v", len(results), left)
	}
}
