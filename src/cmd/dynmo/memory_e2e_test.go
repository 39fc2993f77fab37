package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"dynmo/src/expect"
)

// TestTrainMemoryOfGPT2Small: the resident memory of every rank is at most 1.2 times the bytes of
// its layers and buffers, with the head whole and in slices.
func TestTrainMemoryOfGPT2Small(t *testing.T) {
	if os.Getenv("DYNMO_LONG") != "1" {
		t.Skip("needs a minute and 4 GB: set DYNMO_LONG=1")
	}
	dir := t.TempDir()
	source, err := filepath.Abs("../..")
	expect.OK(t, err)
	if e := alone.run(t, dir, "data", "prepare", "--extensions", ".go", "-o", "tokens.bin", source); e.status != 0 {
		t.Fatal(e.stderr)
	}
	settings := `
		model = {blocks = 12, hidden = 768, heads = 12, sequence = 64, vocab = 50257}
		data = {path = "tokens.bin"}
		parallel = {microbatches = 4, microbatch_size = 4}
		train = {steps = 3}`
	expect.OK(t, os.WriteFile(filepath.Join(dir, "gpt2.toml"), []byte(settings), 0o600))
	for _, c := range []struct{ stages, slices int }{{1, 1}, {4, 1}, {4, 4}} {
		w := world{c.stages}
		w.need(t)
		name := fmt.Sprintf("P=%d,slices=%d", c.stages, c.slices)
		e := w.run(t, dir, "train", "gpt2.toml", "--run-dir", name, "--set", fmt.Sprintf("parallel.stages=%d", c.stages),
			"--set", fmt.Sprintf("model.head_shards=%d", c.slices))
		if e.status != 0 {
			t.Fatalf("%s: %s", name, e.stderr)
		}
		for _, m := range metrics(t, filepath.Join(dir, name)) {
			if len(m.ResidentPerStage) != c.stages {
				t.Fatalf("%s: resident memory of %d stages, want %d", name, len(m.ResidentPerStage), c.stages)
			}
			for stage, resident := range m.ResidentPerStage {
				ratio := float64(resident) / float64(m.BytesPerStage[stage])
				t.Logf("%s, step %d, stage %d: %d of %d bytes, %.3f", name, m.Step, stage, resident, m.BytesPerStage[stage], ratio)
				if ratio > 1.2 || ratio < 0.5 {
					t.Errorf("%s, step %d, stage %d: %.3f times what is accounted for", name, m.Step, stage, ratio)
				}
			}
		}
	}
}
