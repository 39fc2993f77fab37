package nodebench

import (
	"slices"
	"testing"

	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/kernel"
	"dynmo/src/kernel/ref"
	"dynmo/src/model"
	"dynmo/src/tensor"
)

// shallow is a model that the reference trains in no time.
var shallow = model.Config{Blocks: 4, Hidden: 8, Heads: 2, Sequence: 8, Vocab: 256, Seed: 1}

// savingNames returns the kinds whose work is measured.
func savingNames() []string {
	var list []string
	for _, s := range savings {
		list = append(list, s.kind)
	}
	return list
}

// TestDynamism: every kind has its figures, none of them wrong, and leaves no memory.
// Counts are known: 16 buckets leave a sixteenth of the pairs, more in heads as
// small as these, exits let about a quarter of the tokens leave behind each quarter of the
// blocks, and every second block takes an eighth of them.
func TestDynamism(t *testing.T) {
	dev := devcpu.New(device.NewVirtual())
	results, err := Dynamism(ref.New(tensor.F32), dev, shallow, savingNames(), 2)
	expect.OK(t, err)
	if used := dev.Used(); used != 0 {
		t.Errorf("%d bytes were not freed", used)
	}
	counted := map[string][2]float64{
		"dynamism/attention_pairs":            {0.04, 0.2},
		"dynamism/exit_tokens_in_blocks":      {0.5, 0.95},
		"dynamism/propagate_tokens_in_blocks": {0.58, 0.95},
		"dynamism/mod_tokens_in_blocks":       {0.5625, 0.5625},
	}
	var names []string
	for _, r := range results {
		names = append(names, r.Name)
		if r.Wrong != 0 || r.Value == 0 {
			t.Errorf("%+v", r)
		}
		if within, ok := counted[r.Name]; ok && (r.Value < within[0] || r.Value > within[1]) {
			t.Errorf("%s: %v, want %v to %v", r.Name, r.Value, within[0], within[1])
		}
	}
	want := []string{
		"dynamism/freeze_half_saved", "dynamism/freeze_first_half_saved", "dynamism/attention_speedup", "dynamism/attention_pairs",
		"dynamism/exit_tokens_in_blocks", "dynamism/exit_proportional", "dynamism/exit_blocks_proportional", "dynamism/exit_step_saved",
		"dynamism/propagate_tokens_in_blocks", "dynamism/propagate_proportional", "dynamism/propagate_blocks_proportional", "dynamism/propagate_step_saved",
		"dynamism/mod_tokens_in_blocks", "dynamism/mod_proportional", "dynamism/mod_blocks_proportional", "dynamism/mod_step_saved",
	}
	if !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// TestDynamismFindsWrongKernels: a kernel that is wrong makes figures invalid.
func TestDynamismFindsWrongKernels(t *testing.T) {
	for kind, places := range map[string]map[kernel.Op]int{
		"attention": {kernel.SparseAttentionBackward: 0},
	} {
		dev := devcpu.New(device.NewVirtual())
		results, err := Dynamism(newSpoiled(places), dev, shallow, []string{kind}, 1)
		expect.OK(t, err)
		if !slices.ContainsFunc(results, func(r Result) bool { return r.Verdict() == "INVALID" }) {
			t.Errorf("%s: %+v", kind, results)
		}
	}
}
