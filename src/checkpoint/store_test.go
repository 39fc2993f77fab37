package checkpoint

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/fault"
	"dynmo/src/layout"
	"dynmo/src/model"
	"dynmo/src/partition"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/schedule"
	"dynmo/src/tensor"
)

var shape = model.Config{Blocks: 3, Hidden: 8, Heads: 2, Sequence: 5, Vocab: 11, Tied: true, HeadShards: 2, Seed: 7}

// stage returns all layers of a model with every kind of state: masked and CSR matrices, moments,
// registered memory and text, and frozen parameters.
func stage(t *testing.T, dev device.Device, dtype tensor.DType) *model.Stage {
	t.Helper()
	s, err := model.NewStage(shape, shape.All(), dev, dtype)
	expect.OK(t, err)
	for i, l := range s.Layers {
		masks := make(map[int]model.Mask)
		for at, p := range l.Params() {
			for _, m := range []tensor.Mem{p.M, p.V} {
				for k := range tensor.Of[byte](m) {
					tensor.Of[byte](m)[k] = byte(k*7+i) &^ 0x80
				}
			}
			if p.Prunable() && i > 1 {
				masks[at] = model.NewMask(p)
				for k := range masks[at] {
					masks[at][k] = random.Keyed(uint64(i), uint64(at), uint64(k)).Uint64()
				}
			}
		}
		csrFrom := 0.9
		if i == 2 {
			csrFrom = 0
		}
		if len(masks) > 0 {
			expect.OK(t, l.Compress(masks, csrFrom))
		}
		l.Updates = 41 + i
	}
	l := s.Layers[3]
	l.SetState("router", []byte("top 2"))
	m, err := l.AllocState("bias", 24)
	expect.OK(t, err)
	tensor.Of[float64](m)[1] = math.Pi
	_, err = l.AllocState("empty", 0)
	expect.OK(t, err)
	l.Freeze(func(p *model.Param) bool { return p.Name == "qkv.weight" })
	return s
}

// manifest returns what a run of two stages would say of a checkpoint.
func manifest(t *testing.T, step int, files map[string]File) Manifest {
	t.Helper()
	order, err := schedule.New(schedule.Kind1F1B, 2, 1, 4)
	expect.OK(t, err)
	return Manifest{
		Step: step, Settings: "[run]\n", Corpus: "abc", DType: "f32", Layers: shape.Layers(), Files: files,
		Layout: layout.New(partition.Partition{0, 3, shape.Layers()}, order, 1, layout.StageMajor),
	}
}

// known is what a run knows besides its layers.
const known = `{"version":1}`

// save writes a checkpoint of a stage as two ranks do.
func save(t *testing.T, dev device.Device, s *model.Stage, dir string, step, keep int) {
	t.Helper()
	saveBy(t, dev, s, dir, step, keep, nil)
}

// saveBy is save, with a function that is called in every phase.
func saveBy(t *testing.T, dev device.Device, s *model.Stage, dir string, step, keep int, reached func(fault.Phase)) {
	t.Helper()
	all := make(map[string]File)
	for rank, layers := range [][]*model.Layer{s.Layers[:3], s.Layers[3:]} {
		var shot Snapshot
		stream := dev.NewStream()
		expect.OK(t, shot.Take(layers, Share{Of: 1}, stream))
		stream.Close()
		if rank == 0 {
			shot.AddRun([]byte(known))
		}
		files, err := shot.Write(dir, step, reached)
		expect.OK(t, err)
		for name, f := range files {
			all[name] = f
		}
	}
	expect.OK(t, Commit(dir, manifest(t, step, all), reached))
	expect.OK(t, tidy(dir, step, keep, reached))
}

// TestCheckpointsAreExact: every layer comes back bit for bit, whatever its state is
// made of and whoever reads it.
func TestCheckpointsAreExact(t *testing.T) {
	for _, dtype := range []tensor.DType{tensor.F32, tensor.F64, tensor.BF16} {
		dev := cpu.New(device.NewWall())
		s := stage(t, dev, dtype)
		run := t.TempDir()
		save(t, dev, s, filepath.Join(run, record.CheckpointDir), 12, 2)
		c, damaged, err := Newest(run)
		expect.OK(t, err)
		if len(damaged) > 0 || c.Step != 12 || c.Layout.Cuts[1] != 3 {
			t.Errorf("%v: step %d, cuts %v, damaged %v", dtype, c.Step, c.Layout.Cuts, damaged)
		}
		for id, l := range s.Layers {
			again, err := c.Layer(id, shape, dev, dtype)
			expect.OK(t, err)
			want, err := l.Hash()
			expect.OK(t, err)
			if got, err := again.Hash(); got != want || err != nil {
				t.Errorf("%v: layer %d has another state (%v)", dtype, id, err)
			}
			again.Free()
		}
		if text, err := c.Run(); string(text) != known || err != nil {
			t.Errorf("the run knows %q (%v)", text, err)
		}
		if _, err := c.Layer(1, shape, dev, otherThan(dtype)); err == nil || !strings.Contains(err.Error(), "want") {
			t.Errorf("%v: read as %v: error %v", dtype, otherThan(dtype), err)
		}
	}
}

func otherThan(d tensor.DType) tensor.DType {
	if d == tensor.F32 {
		return tensor.F64
	}
	return tensor.F32
}

// TestKeep: the wanted number of checkpoints is kept. Checkpoints after the step at which a run was
// resumed are removed.
func TestKeep(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	dir := filepath.Join(t.TempDir(), record.CheckpointDir)
	for _, step := range []int{10, 20, 30, 15, 15} {
		save(t, dev, s, dir, step, 2)
	}
	names, err := list(dir)
	expect.OK(t, err)
	latest, err := os.ReadFile(filepath.Join(dir, latestFile))
	expect.OK(t, err)
	if strings.Join(names, " ") != "step_00000015" || string(latest) != "step_00000015\n" {
		t.Errorf("kept %v, latest %q", names, latest)
	}
	// What an earlier removal has left goes too. A LATEST that cannot be written keeps its text, as do
	// links that lead nowhere.
	for _, path := range []string{Name(7) + removed, latestFile + unfinished + "/full"} {
		expect.OK(t, os.MkdirAll(filepath.Join(dir, path), 0o700))
	}
	if err := tidy(dir, 20, 2, nil); err == nil || !strings.Contains(err.Error(), "LATEST still names an older checkpoint: ") {
		t.Error(err)
	}
	expect.OK(t, os.RemoveAll(filepath.Join(dir, latestFile+unfinished)))
	if text, err := os.ReadFile(filepath.Join(dir, latestFile)); string(text) != string(latest) {
		t.Errorf("latest %q, %v", text, err)
	}
	expect.OK(t, os.Symlink("/nowhere", filepath.Join(dir, Name(3))))
	if whole, damaged, err := All(filepath.Dir(dir)); len(whole) != 1 || len(damaged) != 1 || err != nil {
		t.Errorf("%v, damaged %v, %v", whole, damaged, err)
	}
	expect.OK(t, os.Remove(filepath.Join(dir, Name(3))))
	expect.OK(t, os.MkdirAll(filepath.Join(dir, Name(20)+unfinished), 0o700))
	expect.OK(t, clean(dir))
	if entries, err := os.ReadDir(dir); len(entries) != 2 || err != nil {
		t.Errorf("%v after cleaning (%v)", entries, err)
	}
}

// TestRemovedWhileRead: a checkpoint that its run removes can be read to its end once it is open. A
// reader that comes later takes a newer checkpoint.
func TestRemovedWhileRead(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	dir := filepath.Join(run, record.CheckpointDir)
	save(t, dev, s, dir, 10, 1)
	first, _, err := Newest(run)
	expect.OK(t, err)
	whole, damaged, err := Newest(run, func(c *Checkpoint) {
		if c.Step == 10 {
			c.Close() // as beyond the limit of open files
			save(t, dev, s, dir, 20, 1)
		}
	})
	if err != nil || len(damaged) > 0 || whole.Step != 20 {
		t.Fatalf("%+v, damaged %v, error %v; want step 20", whole, damaged, err)
	}
	expect.OK(t, first.Verify())
	if !first.IsRemoved(nil) {
		t.Errorf("%s exists", first.Dir)
	}
}

// TestWithoutRun: a checkpoint of an older version, which has no run.json, is whole.
func TestWithoutRun(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	dir := filepath.Join(run, record.CheckpointDir)
	var shot Snapshot
	stream := dev.NewStream()
	defer stream.Close()
	expect.OK(t, shot.Take(s.Layers, Share{Of: 1}, stream))
	files, err := shot.Write(dir, 7, nil)
	expect.OK(t, err)
	expect.OK(t, Commit(dir, manifest(t, 7, files), nil))
	c, _, err := Newest(run)
	expect.OK(t, err)
	if text, err := c.Run(); text != nil || err != nil {
		t.Errorf("the run knows %q (%v)", text, err)
	}
}

// TestDamage: any damage to a checkpoint's files is found before a weight is used. The report names
// the file, and the checkpoint before is taken.
func TestDamage(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	for name, c := range map[string]struct {
		damage func(path string, text []byte) error
		file   string
		want   string
	}{
		"flipped bit":     {flip(0.5), weightsFile(2), "layer-00002.safetensors: SHA-256"},
		"flipped header":  {flip(0.01), stateFile(4), "state-00004.safetensors: SHA-256"},
		"cut":             {cut(1), weightsFile(1), "layer-00001.safetensors: "},
		"empty":           {cut(0), stateFile(0), "state-00000.safetensors: 0 bytes"},
		"flipped run":     {flip(0.5), runFile, "run.json: SHA-256"},
		"missing run":     {remove, runFile, "run.json"},
		"missing":         {remove, weightsFile(3), "layer-00003.safetensors"},
		"no manifest":     {remove, ManifestFile, "manifest.json"},
		"empty manifest":  {cut(0), ManifestFile, "manifest.json"},
		"torn manifest":   {cut(0.5), ManifestFile, "manifest.json"},
		"newer format":    {swap(`"format": 1`, `"format": 2`), ManifestFile, "format 2, this program reads 1"},
		"unknown key":     {swap(`"format": 1`, `"format": 1, "more": 2`), ManifestFile, "unknown field"},
		"missing layer":   {swap(fmt.Sprintf(`"layers": %d`, shape.Layers()), `"layers": 5`), ManifestFile, "does not cover layers 0 to 5"},
		"wrong step":      {swap(`"step": 20`, `"step": -1`), ManifestFile, "step -1"},
		"too many steps":  {swap(`"step": 20`, `"step": 9223372036854775807`), ManifestFile, "step 9223372036854775807"},
		"one digit":       {swap(`"step": 20`, `"step": 30`), ManifestFile, "not as it was written"},
		"one letter":      {swap(`"corpus"`, `"Corpus"`), ManifestFile, "not as it was written"},
		"another's name":  {renamed, ManifestFile, "step 10, the directory's name is another's"},
		"a path in names": {swap(`"layer-00002.safetensors"`, `"../../layer-00002.st"`), ManifestFile, "layer-00002.safetensors is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			expect.NewFault(t, "F06", "")
			run := t.TempDir()
			dir := filepath.Join(run, record.CheckpointDir)
			save(t, dev, s, dir, 10, 2)
			save(t, dev, s, dir, 20, 2)
			path := filepath.Join(dir, Name(20), c.file)
			text, err := os.ReadFile(path)
			expect.OK(t, err)
			expect.OK(t, c.damage(path, text))
			newest, damaged, err := Newest(run)
			expect.OK(t, err)
			if newest.Step != 10 || len(damaged) != 1 || !strings.Contains(damaged[0].Error(), c.want) || !strings.Contains(damaged[0].Error(), Name(20)) {
				t.Errorf("step %d, damaged %v, want %q", newest.Step, damaged, c.want)
			}
		})
	}
}

// TestLatest: what LATEST says is for people. Whatever it says, the newest whole
// checkpoint is taken.
func TestLatest(t *testing.T) {
	expect.NewFault(t, "F07", "")
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	dir := filepath.Join(run, record.CheckpointDir)
	save(t, dev, s, dir, 10, 2)
	save(t, dev, s, dir, 20, 2)
	path := filepath.Join(dir, latestFile)
	for _, text := range []string{"step_00000030\n", "../../elsewhere\n", "", Name(10) + "\n"} {
		expect.OK(t, os.WriteFile(path, []byte(text), 0o600))
		if c, damaged, err := Newest(run); err != nil || len(damaged) > 0 || c.Step != 20 {
			t.Errorf("LATEST %q: %+v, damaged %v, error %v", text, c, damaged, err)
		}
	}
	expect.OK(t, os.Remove(path))
	if c, _, err := Newest(run); err != nil || c.Step != 20 {
		t.Errorf("no LATEST: %+v, error %v", c, err)
	}
}

func flip(at float64) func(string, []byte) error {
	return func(path string, text []byte) error {
		text[int(at*float64(len(text)))] ^= 4
		return os.WriteFile(path, text, 0o600)
	}
}

func cut(at float64) func(string, []byte) error {
	return func(path string, text []byte) error {
		return os.Truncate(path, max(0, int64(at*float64(len(text)))-1))
	}
}

func swap(from, to string) func(string, []byte) error {
	return func(path string, text []byte) error {
		return os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600)
	}
}

func remove(path string, _ []byte) error { return os.Remove(path) }

// renamed puts a copy of the checkpoint of step 10 in a checkpoint's place.
func renamed(path string, _ []byte) error {
	dir := filepath.Dir(path)
	return cmp.Or(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join(filepath.Dir(dir), Name(10)))))
}

// TestNothingLeft: no checkpoint, or none that is whole, is an error; a file that cannot
// be written leaves none of its rank's.
func TestNothingLeft(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	if _, _, err := Newest(run); err == nil || !strings.Contains(err.Error(), "no whole checkpoint") {
		t.Errorf("error %v", err)
	}
	dir := filepath.Join(run, record.CheckpointDir)
	at := filepath.Join(dir, Name(5)+unfinished)
	expect.OK(t, os.MkdirAll(filepath.Join(at, stateFile(1)), 0o700)) // in the way
	var shot Snapshot
	stream := dev.NewStream()
	defer stream.Close()
	expect.OK(t, shot.Take(s.Layers, Share{Of: 1}, stream))
	if _, err := shot.Write(dir, 5, nil); err == nil || !strings.Contains(err.Error(), stateFile(1)) {
		t.Errorf("error %v", err)
	}
	if entries, err := os.ReadDir(at); len(entries) != 1 || err != nil {
		t.Errorf("left behind: %v (%v)", entries, err)
	}
	expect.OK(t, discard(dir, 5))
	expect.OK(t, room(dir, shot.Bytes()))
	if err := room(dir, 1<<60); err == nil || !strings.Contains(err.Error(), "are free") {
		t.Errorf("room for 2^60 bytes: error %v", err)
	}
}
