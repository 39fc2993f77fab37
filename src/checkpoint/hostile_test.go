package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"dynmo/src/device"
	"dynmo/src/device/cpu"
	"dynmo/src/expect"
	"dynmo/src/random"
	"dynmo/src/record"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// TestEveryFlipAndCutIsFound: one bit flipped anywhere in any file, or a file cut
// anywhere, is found before a weight is used.
func TestEveryFlipAndCutIsFound(t *testing.T) {
	expect.NewFault(t, "F06", "")
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	dir := filepath.Join(run, record.CheckpointDir)
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

// TestHostileStructure: columns beyond a matrix and text that is as long as it likes are
// refused where the hashes agree, too.
func TestHostileStructure(t *testing.T) {
	dev := cpu.New(device.NewWall())
	s := stage(t, dev, tensor.F32)
	run := t.TempDir()
	save(t, dev, s, filepath.Join(run, record.CheckpointDir), 10, 2)
	for name, c := range map[string]struct {
		file   string
		change func(text []byte, f *weights.File) []byte
		want   string
	}{
		"columns": {weightsFile(2), func(text []byte, f *weights.File) []byte {
			at := slices.IndexFunc(f.Tensors, func(t weights.Tensor) bool { return strings.HasSuffix(t.Name, ".columns") })
			text[f.Offset(f.Tensors[at])+1] = 1 // column 256
			return text
		}, "has column 2"},
		"text": {stateFile(2), func(text []byte, _ *weights.File) []byte {
			return bytes.Replace(text, []byte(`\"name\":\"header\",\"bytes\":`), []byte(`\"name\":\"header\",\"bytes\":-`), 1)
		}, "bytes of text, want -"},
	} {
		all, damaged, err := All(run)
		expect.OK(t, err)
		if len(all) != 1 {
			t.Fatal(damaged)
		}
		path := filepath.Join(all[0].Dir, c.file)
		was, err := os.ReadFile(path)
		expect.OK(t, err)
		f, err := weights.Parse(c.file, bytes.NewReader(was), int64(len(was)))
		expect.OK(t, err)
		text := c.change(slices.Clone(was), f)
		if bytes.Equal(text, was) {
			t.Fatalf("%s: nothing changed", name)
		}
		binary.LittleEndian.PutUint64(text, uint64(int(binary.LittleEndian.Uint64(text))+len(text)-len(was)))
		expect.OK(t, os.WriteFile(path, text, 0o600))
		sum := sha256.Sum256(text)
		all[0].Files[c.file] = File{int64(len(text)), hex.EncodeToString(sum[:])}
		if _, err := all[0].Layer(2, shape, dev, tensor.F32); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		expect.OK(t, os.WriteFile(path, was, 0o600))
	}
}

// FuzzManifest: opening any manifest gives an error, or a checkpoint whose files exist.
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
