package store

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/random"
	"dynmo/src/tensor"
)

// TestEveryFlipAndCutIsFound: one bit flipped anywhere in any file, or a file cut
// anywhere, is found before a weight is used.
func TestEveryFlipAndCutIsFound(t *testing.T) {
	expect.NewFault(t, "F06", "")
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	dir := filepath.Join(run, Directory)
	save(t, dev, s, dir, 10, 2)
	c, err := Open(filepath.Join(dir, Name(10)))
	expect.OK(t, err)
	names := append(slices.Sorted(maps.Keys(c.Files)), ManifestFile)
	draw := random.Keyed(6)
	for i := range 200 {
		path := filepath.Join(c.Dir, names[i%len(names)])
		was, err := os.ReadFile(path)
		expect.OK(t, err)
		at := draw.IntN(len(was))
		if i%2 == 0 {
			expect.OK(t, flip(float64(at)/float64(len(was)))(path, slices.Clone(was)))
		} else {
			lengths := []int{0, 1, 7, 8, len(was) / 2, len(was) - 1}
			expect.OK(t, os.Truncate(path, int64(lengths[i/2%len(lengths)])))
		}
		if newest, damaged, err := Newest(run); err == nil || len(damaged) != 1 {
			t.Fatalf("%s at %d: taken as whole: %+v", path, at, newest)
		}
		expect.OK(t, os.WriteFile(path, was, 0o600))
	}
	_, damaged, err := Newest(run)
	expect.OK(t, err)
	if len(damaged) > 0 {
		t.Errorf("mended, and still damaged: %v", damaged)
	}
}

// FuzzManifest: whatever stands in a manifest, opening it ends with an error or with a
// checkpoint whose files are there.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"format":1,"step":3,"layers":1,"files":{}}`))
	f.Add([]byte(`{"format":1,"layers":1000000000,"layout":{"stages":1,"replicas":1,"cuts":[0,1],"schedule":"1f1b","microbatches":4}}`))
	f.Add([]byte(`{"format":1,"layers":1,"layout":{"stages":1,"replicas":1,"mesh":"stage-major","cuts":[0,1],"schedule":"1f1b","microbatches":99999}}`))
	f.Add([]byte(`{"format":1,"layers":1,"files":{"run.json":{"bytes":-1,"sha256":""}},"layout":{"stages":1,"replicas":1,"cuts":[0,1],"schedule":"1f1b","microbatches":4}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		expect.OK(t, os.WriteFile(filepath.Join(dir, ManifestFile), text, 0o600))
		if c, err := Open(dir); err == nil {
			t.Errorf("opened without files: %+v", c)
		}
	})
}
