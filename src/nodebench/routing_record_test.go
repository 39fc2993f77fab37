package nodebench

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	devcpu "dynmo/src/device/cpu"
	"dynmo/src/dynamic/routing"
	"dynmo/src/expect"
	"dynmo/src/kernel/ref"
	"dynmo/src/kind/moe"
	"dynmo/src/layout"
	"dynmo/src/mesh"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/schedule"
	"dynmo/src/store"
	"dynmo/src/tensor"
)

// saved returns a checkpoint of an untrained model of some settings.
func saved(t *testing.T, sets ...string) *store.Checkpoint {
	t.Helper()
	settings, err := config.Load("", append([]string{
		"model.family=llama", "model.blocks=2", "model.hidden=16", "model.heads=2", "model.sequence=8", "data.limit_bytes=20000", "parallel.microbatch_size=4",
	}, sets...))
	expect.OK(t, err)
	shape, dev, dir := model.FromConfig(settings).Whole(), devcpu.New(device.NewVirtual()), t.TempDir()
	s, err := model.NewStage(shape, shape.All(), dev, tensor.F32)
	expect.OK(t, err)
	defer s.Free()
	var shot store.Snapshot
	expect.OK(t, shot.Take(s.Layers, store.Share{Of: 1}, dev.NewStream()))
	files, err := shot.Write(dir, 1, nil)
	expect.OK(t, err)
	order, err := schedule.New(schedule.Kind1F1B, 1, 1, 1)
	expect.OK(t, err)
	expect.OK(t, store.Commit(dir, store.Manifest{
		Step: 1, DType: tensor.F32.String(), Layers: len(s.Layers), Files: files, Settings: settings.TOML(),
		Layout: layout.New(partition.Partition{0, len(s.Layers)}, order, 1, mesh.StageMajor),
	}, 1, nil))
	c, err := store.Open(filepath.Join(dir, store.Name(1)))
	expect.OK(t, err)
	return c
}

// TestRouting: every token of a slot is counted at as many experts as it goes to, a
// mixture of depths' share in its blocks, figures of a model that is as it began are those
// of the untrained one, and no memory stays.
func TestRouting(t *testing.T) {
	for kind, share := range map[string]int{"moe": 1, "moe+mod": 2} {
		dev := devcpu.New(device.NewVirtual())
		const slots, replicas = untrainedSlots, 2
		r, figures := recorded(t, dev, slots, replicas, "dynamic.kind="+kind, "mod.capacity=0.5")
		if used := dev.Used(); used != 0 {
			t.Errorf("%s: %d bytes were not freed", kind, used)
		}
		for slot := range slots {
			for block, want := range []int{2 * 4 * 8 * replicas, 2 * 4 * 8 * replicas / share} {
				sum := 0
				for _, n := range r.Loads(block, slot) {
					sum += int(n)
				}
				if sum != want {
					t.Fatalf("%s: block %d, slot %d: %d assignments, want %d", kind, block, slot, sum, want)
				}
			}
		}
		values := make(map[string]float64)
		for _, f := range figures {
			values[f.Name] = f.Value
		}
		for _, name := range []string{"entropy", "entropy_of_token", "first"} {
			if got, want := values["routing/"+name], values["routing/untrained_"+name]; got != want || got == 0 {
				t.Errorf("%s: %s %v, of the untrained model %v", kind, name, got, want)
			}
		}
		if given, all := values["routing/entropy_of_token"], values["routing/entropy"]; given > all || all > 2 {
			t.Errorf("%s: %v bits of %v, want at most 2 of 4 experts", kind, given, all)
		}
	}
}

// recorded records what a checkpoint of four experts does.
func recorded(t *testing.T, dev device.Device, slots, replicas int, sets ...string) (routing.Recording, []Result) {
	t.Helper()
	choices, err := NewRouting(saved(t, append(sets, "moe.experts=4")...), "mine", "", slots, replicas)
	expect.OK(t, err)
	r, figures, err := choices.Record(ref.New(tensor.F32), dev)
	expect.OK(t, err)
	return r, figures
}

// TestRoutingOfAnyLayout: tokens go where they do whether experts are groups, a layer of
// their own, or spread over replicas.
func TestRoutingOfAnyLayout(t *testing.T) {
	const slots, replicas = 2, 1
	want, _ := recorded(t, devcpu.New(device.NewVirtual()), slots, replicas, "dynamic.kind=moe")
	for _, sets := range [][]string{{"model.grain=expert", "moe.groups=2"}, {"model.grain=half"}, {"parallel.replicas=2", "parallel.experts=spread"}} {
		r, _ := recorded(t, devcpu.New(device.NewVirtual()), slots, replicas, append(sets, "dynamic.kind=moe")...)
		for block := range want.Blocks {
			for slot := range slots {
				if !slices.Equal(r.Loads(block, slot), want.Loads(block, slot)) {
					t.Errorf("%v: block %d: %v, want %v", sets, block, r.Loads(block, slot), want.Loads(block, slot))
				}
			}
		}
	}
}

// TestRoutingFigures: a block that no token came to says nothing.
func TestRoutingFigures(t *testing.T) {
	seen := choices{of: map[int32][]float64{1: {3, 1}}, first: 3, all: 4, assignments: 4}
	w := routed{stepper: &stepper{stage: &model.Stage{Config: model.Config{}.With(moe.Experts{Count: 2, Top: 1})}}, blocks: []choices{seen, {}}}
	for _, f := range w.figures() {
		if f.name == "first" && f.value != 0.75 || math.IsNaN(f.value) {
			t.Errorf("%s: %v", f.name, f.value)
		}
	}
}

// TestRoutingRefuses: a model without experts, and data that are not there.
func TestRoutingRefuses(t *testing.T) {
	for want, c := range map[string]struct{ kind, path string }{
		"no experts: want dynamic.kind with moe": {"none", ""}, "data.path": {"moe", "nowhere"}, "both text, or both token files": {"moe", "nowhere.bin"},
	} {
		_, err := NewRouting(saved(t, "dynamic.kind="+c.kind), "mine", c.path, 1, 1)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
