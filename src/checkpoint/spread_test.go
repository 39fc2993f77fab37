package checkpoint

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/config"
	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// mixture returns the settings of a mixture of experts.
func mixture() config.Config {
	c := config.Default()
	m := &c.Model
	m.Family, m.Blocks, m.Hidden, m.Heads, m.Sequence, m.Tied, m.Grain = "llama", 2, 8, 2, 5, false, "half"
	c.Dynamic.Kind = "moe"
	c.Assign("moe.experts", 4, "moe.top", 2, "moe.intermediate", 6)
	return c
}

// filled returns a replica's layers. Every value follows from its layer, tensor and expert, so it is
// the same on any replica.
func filled(t *testing.T, shape model.Config, dev device.Device, dtype tensor.DType) *model.Stage {
	t.Helper()
	s, err := model.NewStage(shape, shape.All(), dev, dtype)
	expect.OK(t, err)
	for _, l := range s.Layers {
		for _, p := range l.Params() {
			for i, m := range []tensor.Mem{p.W, p.Master, p.M, p.V} {
				key := fnv.New64a()
				fmt.Fprintf(key, "%d %s %d", l.ID, p.Name, i)
				draw := random.Keyed(key.Sum64())
				for k := range tensor.Of[byte](m) {
					tensor.Of[byte](m)[k] = byte(draw.Uint64()) &^ 0x80
				}
			}
		}
		l.Updates = 7 + l.ID
		if strings.HasSuffix(l.Name, ".mlp") {
			l.SetState("router", []byte("top 2"))
			l.Freeze(func(*model.Param) bool { return l.Block == 0 })
		}
	}
	return s
}

// saveShared writes a checkpoint of a mixture of experts that are spread over a number of replicas;
// 0: one replica has all experts.
func saveShared(t *testing.T, dir string, step, spread int, dtype tensor.DType) {
	t.Helper()
	dev := cpu.New(device.NewWall())
	stream := dev.NewStream()
	defer stream.Close()
	c, files := mixture(), make(map[string]File)
	shape, replicas := model.FromConfig(c), max(1, spread)
	for replica := range replicas {
		s := filled(t, shape.AsReplica(replica, spread), dev, dtype)
		var shot Snapshot
		expect.OK(t, shot.Take(s.Layers, Share{Replica: replica, Of: replicas}, stream))
		written, err := shot.Write(dir, step, nil)
		expect.OK(t, err)
		for name, f := range written {
			if _, twice := files[name]; twice {
				t.Errorf("%s is written twice", name)
			}
			files[name] = f
		}
		s.Free()
	}
	order, err := schedule.New(schedule.Kind1F1B, 1, 1, 1)
	expect.OK(t, err)
	m := Manifest{Step: step, Settings: c.TOML(), DType: dtype.String(), Layers: shape.Layers(), Files: files,
		Layout: layout.New(partition.Partition{0, shape.Layers()}, order, replicas, layout.StageMajor)}
	expect.OK(t, Commit(dir, m, nil))
}

// TestShared: the experts that replicas had alone come back bit for bit: on the same number of
// replicas, on another number, and on one replica with all experts. Nothing is saved twice.
func TestShared(t *testing.T) {
	ways := []int{0, 2, 4}
	for _, dtype := range []tensor.DType{tensor.F32, tensor.BF16} {
		dev := cpu.New(device.NewWall())
		bytes := make(map[int]int64)
		for _, from := range ways {
			run := t.TempDir()
			saveShared(t, filepath.Join(run, record.CheckpointDir), 3, from, dtype)
			c, _, err := Newest(run)
			expect.OK(t, err)
			expect.OK(t, c.Restore())
			for name := range c.Files {
				f, err := weights.Open(filepath.Join(c.Dir, name))
				expect.OK(t, err)
				for _, tensor := range f.Tensors {
					bytes[from] += tensor.Bytes()
				}
				expect.OK(t, f.Close())
			}
			for _, to := range ways {
				for replica := range max(1, to) {
					shape := model.FromConfig(mixture()).AsReplica(replica, to)
					for id, want := range filled(t, shape, dev, dtype).Layers {
						l, err := c.Layer(id, shape, dev, dtype)
						expect.OK(t, err)
						sameState(t, l, want, fmt.Sprintf("%v: %d replicas to %d: replica %d: layer %d", dtype, from, to, replica, id))
						l.Free()
					}
				}
			}
		}
		if bytes[2] != bytes[0] || bytes[4] != bytes[0] {
			t.Errorf("%v: bytes of tensors by replicas: %v", dtype, bytes)
		}
	}
}

func sameState(t *testing.T, got, want *model.Layer, what string) {
	t.Helper()
	a, err := got.Hash()
	expect.OK(t, err)
	b, err := want.Hash()
	expect.OK(t, err)
	if a != b {
		t.Errorf("%s: another state", what)
	}
}

// TestSharedWeights: the weights of a checkpoint have the experts of all replicas.
func TestSharedWeights(t *testing.T) {
	run := t.TempDir()
	saveShared(t, filepath.Join(run, record.CheckpointDir), 3, 2, tensor.F32)
	c, _, err := Newest(run)
	expect.OK(t, err)
	got, err := c.Weights()
	expect.OK(t, err)
	s := filled(t, model.FromConfig(mixture()), cpu.New(device.NewWall()), tensor.F32)
	want := weights.FromChain(s.Config, func(id int) (*model.Layer, error) { return s.Layers[id], nil }, func() {})
	for _, p := range want.Config.Model.Weights() {
		x, err := got.Read(p)
		expect.OK(t, err)
		y, err := want.Read(p)
		expect.OK(t, err)
		if !slices.Equal(x, y) {
			t.Errorf("%s differs", p.Name)
		}
	}
	expect.OK(t, got.Close())
}

// TestSharedDamage: what is wrong with the file of one replica is found, and the
// checkpoint before is taken.
func TestSharedDamage(t *testing.T) {
	const experts = 2 // of the first block
	for name, c := range map[string]struct {
		damage     func(path string, text []byte) error
		file, want string
	}{
		"flipped":           {flip(0.7), ownFile(experts, 1), ownFile(experts, 1) + ": SHA-256"},
		"cut":               {cut(0.5), ownFile(experts, 0), ownFile(experts, 0) + ": "},
		"missing":           {remove, ownFile(experts, 1), ownFile(experts, 1)},
		"not named":         {swap(ownFile(experts, 1), ownFile(experts, 2)), ManifestFile, ownFile(experts, 1) + " is missing"},
		"of another":        {swap(ownFile(experts, 1), "own-00009-00000.safetensors"), ManifestFile, ownFile(experts, 1) + " is missing"},
		"first not named":   {swap(ownFile(experts, 0), ownFile(experts, 2)), ManifestFile, "one more for each replica of those that replicas share out"},
		"too many replicas": {swap(`"replicas": 2`, `"replicas": 3`), ManifestFile, ownFile(experts, 2) + " is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			expect.NewFault(t, "F06", "experts: "+name)
			run := t.TempDir()
			dir := filepath.Join(run, record.CheckpointDir)
			saveShared(t, dir, 10, 2, tensor.F32)
			saveShared(t, dir, 20, 2, tensor.F32)
			path := filepath.Join(dir, Name(20), c.file)
			text, err := os.ReadFile(path)
			expect.OK(t, err)
			expect.OK(t, c.damage(path, text))
			newest, damaged, err := Newest(run)
			expect.OK(t, err)
			if newest.Step != 10 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), c.want) {
				t.Errorf("step %d, damaged %v, want %q", newest.Step, damaged, c.want)
			}
		})
	}
}
