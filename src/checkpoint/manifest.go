package checkpoint

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"

	"dynmo/src/files"
	"dynmo/src/layout"
)

// Format is the newest format of checkpoints, which this program writes.
const format = 1

// Names in the directory of a run's checkpoints and in a checkpoint.
const (
	ManifestFile = "manifest.json"
	runFile      = "run.json"
	latestFile   = "LATEST"
	unfinished   = ".tmp"     // suffix of a checkpoint that is being written
	removed      = ".old.tmp" // suffix of a checkpoint that is being removed
)

// mostManifest bounds a manifest in bytes, and mostLayers its number of layers. Both are far above
// any real chain.
const (
	mostManifest = 256 << 20
	mostLayers   = 1 << 20
	mostSteps    = 99_999_999 // the largest step in a name of 8 digits; names sort in the order of steps
)

// mostRun bounds the state of a run in a checkpoint, in bytes: about four kilobytes for a layer.
const mostRun = 64 << 20

// Manifest describes a checkpoint.
type Manifest struct {
	Format   int             `json:"format"`
	SHA256   string          `json:"sha256,omitempty"` // of the manifest itself, see seal; absent from older ones
	Step     int             `json:"step"`             // completed steps, and the number of the next step
	Loss     *float64        `json:"loss,omitempty"`   // loss of the last completed step, if finite
	Skipped  int             `json:"skipped"`          // consecutive skipped updates up to the last completed step
	Sparsity float64         `json:"sparsity"`         // share of prunable parameters that are pruned
	Settings string          `json:"settings"`         // the run's resolved configuration
	Layout   layout.Layout   `json:"layout"`           // of the next step
	Corpus   string          `json:"corpus"`           // SHA-256 of the training text; with the step it determines the next samples
	DType    string          `json:"dtype"`            // of weights
	Layers   int             `json:"layers"`
	Files    map[string]File `json:"files"`
}

// File is a file of a checkpoint.
type File struct {
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// weightsFile and stateFile return the names of a layer's files.
func weightsFile(layer int) string { return fmt.Sprintf("layer-%05d.safetensors", layer) }
func stateFile(layer int) string   { return fmt.Sprintf("state-%05d.safetensors", layer) }

// ownFile returns the name of the file with a replica's own part of a layer.
func ownFile(layer, replica int) string {
	return fmt.Sprintf("own-%05d-%05d.safetensors", layer, replica)
}

// Name returns the name of the checkpoint after `step` steps.
func Name(step int) string { return fmt.Sprintf("step_%08d", step) }

// readManifest reads and checks the manifest of a checkpoint's directory.
func readManifest(dir string) (m Manifest, err error) {
	fail := func(err error) (Manifest, error) { return m, fmt.Errorf("%s: %w", ManifestFile, err) }
	f, err := files.Open(filepath.Join(dir, ManifestFile), mostManifest)
	if err != nil {
		return m, err
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return fail(err)
	}
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(text, &version); err != nil {
		return fail(err)
	}
	if version.Format != format {
		return fail(fmt.Errorf("format %d, this program reads %d", version.Format, format))
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return fail(err)
	}
	if err := cmp.Or(m.check(), m.sealed(text)); err != nil {
		return fail(err)
	}
	return m, nil
}

// check returns an error unless the manifest is valid and names exactly the files of its layers.
func (m Manifest) check() error {
	if m.Step < 0 || m.Step > mostSteps || m.Layers < 1 || m.Layers > mostLayers {
		return fmt.Errorf("step %d of %d layers", m.Step, m.Layers)
	}
	if err := m.Layout.Check(m.Layers); err != nil {
		return err
	}
	want := 0
	if m.has(runFile) {
		want++
	}
	for id := range m.Layers {
		names := []string{weightsFile(id), stateFile(id)}
		if m.sharedOut(id) {
			for replica := range m.Layout.Mesh.Replicas {
				names = append(names, ownFile(id, replica))
			}
		}
		for _, name := range names {
			if !m.has(name) {
				return fmt.Errorf("%s is missing", name)
			}
		}
		want += len(names)
	}
	if len(m.Files) != want {
		return fmt.Errorf("%d files, want %d: two for each layer, one more for each replica of those that replicas share out, and %s if there is one", len(m.Files), want, runFile)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		f := m.Files[name]
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != 32 || f.Bytes < 0 {
			return fmt.Errorf("%s: %d bytes with hash %.100q", name, f.Bytes, f.SHA256)
		}
	}
	return nil
}

// has reports whether the checkpoint has a file.
func (m Manifest) has(name string) bool {
	_, ok := m.Files[name]
	return ok
}

// sharedOut reports whether each replica had its own parameters of a layer.
func (m Manifest) sharedOut(layer int) bool { return m.has(ownFile(layer, 0)) }
