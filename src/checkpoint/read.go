package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"dynmo/src/device"
	"dynmo/src/files"
	"dynmo/src/model"
	"dynmo/src/record"
	"dynmo/src/tensor"
	"dynmo/src/weights"
)

// Checkpoint is a checkpoint with a checked manifest and checked file lengths. Only one goroutine
// may read it.
type Checkpoint struct {
	Manifest
	Dir  string
	Show func(bytes int64) `json:"-"` // called with the length of each file after it was read; may be nil

	text  []byte              // content of the file that was read last
	files map[string]*os.File // open files by name, see Hold
}

// list returns the names of the checkpoints below a directory, newest first.
func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		var step int
		if n, err := fmt.Sscanf(e.Name(), "step_%d", &step); n == 1 && err == nil && e.Name() == Name(step) {
			names = append(names, e.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return strings.Compare(b, a) })
	return names, nil
}

// Has reports whether a run directory has a checkpoint, damaged or not.
func Has(runDir string) bool {
	names, err := list(filepath.Join(runDir, record.CheckpointDir))
	return len(names) > 0 && err == nil
}

// MostLooks bounds how often a reader looks again because a run has removed checkpoints meanwhile. A
// directory that is listed but not there, as a stale one on NFS, then counts as damaged.
const MostLooks = 100

// All returns the checkpoints of a run directory, newest first. damaged has the reasons why others
// were left out: a damaged manifest, or a file that is missing or has another length. A checkpoint
// that a run has removed meanwhile is not damaged: All then looks again.
func All(runDir string) (whole []*Checkpoint, damaged []error, err error) {
	dir := filepath.Join(runDir, record.CheckpointDir)
	for range MostLooks {
		removed := false
		whole, damaged = nil, nil
		names, err := list(dir)
		if err != nil {
			return nil, nil, err
		}
		for _, name := range names {
			c, err := Open(filepath.Join(dir, name))
			if err == nil && Name(c.Step) != name {
				err = c.fail(ManifestFile, fmt.Errorf("step %d, the directory's name is another's", c.Step))
			}
			if err == nil {
				whole = append(whole, c)
			} else {
				damaged = append(damaged, err)
				removed = removed || isRemoved(filepath.Join(dir, name), err)
			}
		}
		if !removed {
			break
		}
	}
	return whole, damaged, nil
}

// isRemoved reports whether a directory no longer exists. err is the error of reading it.
func isRemoved(dir string, err error) bool {
	_, there := os.Lstat(dir)
	return errors.Is(there, fs.ErrNotExist) || errors.Is(err, unix.ESTALE)
}

// Newest returns the newest checkpoint of a run directory whose files are all undamaged, and the
// reasons why newer ones were left out. Its files are open. It calls before with each checkpoint
// before it reads the files.
func Newest(runDir string, before ...func(*Checkpoint)) (c *Checkpoint, damaged []error, err error) {
	for range MostLooks {
		var all []*Checkpoint
		if all, damaged, err = All(runDir); err != nil {
			return nil, damaged, err
		}
		removed := false
		for _, c := range all {
			for _, call := range before {
				call(c)
			}
			err := c.Hold()
			if err == nil {
				err = c.Verify()
			}
			if err == nil {
				return c, damaged, nil
			}
			c.Close()
			if removed = c.IsRemoved(err); removed {
				break
			}
			damaged = append(damaged, err)
		}
		if !removed {
			break
		}
	}
	return nil, damaged, fmt.Errorf("%s: no whole checkpoint (%d damaged)", filepath.Join(runDir, record.CheckpointDir), len(damaged))
}

// Open opens a checkpoint's directory.
func Open(dir string) (*Checkpoint, error) {
	m, err := readManifest(dir)
	if err != nil {
		return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	c := &Checkpoint{Manifest: m, Dir: dir}
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		info, err := os.Stat(filepath.Join(dir, name))
		if err == nil && info.Size() != m.Files[name].Bytes {
			err = fmt.Errorf("%d bytes, the manifest says %d", info.Size(), m.Files[name].Bytes)
		}
		if err != nil {
			return nil, c.fail(name, err)
		}
	}
	return c, nil
}

// Hold opens all files, so that they can still be read once a run has removed the checkpoint. Beyond
// the limit of open files it opens none: they are then opened to be read. Close ends it.
func (c *Checkpoint) Hold() error {
	c.files = make(map[string]*os.File, len(c.Files))
	for name := range c.Files {
		f, _, err := files.Regular(filepath.Join(c.Dir, name), files.Unbound)
		if err != nil {
			c.Close()
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
				return nil
			}
			return c.fail(name, err)
		}
		c.files[name] = f
	}
	return nil
}

// Close closes the files. Later reads open them again.
func (c *Checkpoint) Close() {
	for _, f := range c.files {
		f.Close()
	}
	c.files = nil
}

// IsRemoved reports whether the checkpoint no longer exists, as when its run has removed it. err is
// the error of reading it.
func (c *Checkpoint) IsRemoved(err error) bool { return isRemoved(c.Dir, err) }

// file returns the content of a file of at most limit bytes, and a function that ends the reading.
func (c *Checkpoint) file(name string, limit int64) (content *io.SectionReader, done func() error, err error) {
	done = func() error { return nil }
	f, held := c.files[name]
	if !held {
		if f, _, err = files.Regular(filepath.Join(c.Dir, name), files.Unbound); err != nil {
			return nil, done, err
		}
		done = f.Close
	}
	info, err := f.Stat()
	if err == nil && info.Size() > limit {
		err = fmt.Errorf("%d bytes, want at most %d", info.Size(), limit)
	}
	if err != nil {
		return nil, done, errors.Join(err, done())
	}
	return io.NewSectionReader(f, 0, info.Size()), done, nil
}

// Bytes returns the total length of all files.
func (c *Checkpoint) Bytes() int64 {
	bytes := int64(0)
	for _, f := range c.Files {
		bytes += f.Bytes
	}
	return bytes
}

// Verify reads all files and checks their hashes.
func (c *Checkpoint) Verify() error {
	for _, name := range slices.Sorted(maps.Keys(c.Files)) {
		hash := sha256.New()
		content, done, err := c.file(name, files.Unbound)
		if err == nil {
			_, err = io.Copy(hash, content)
			err = errors.Join(err, done())
		}
		if err == nil {
			err = c.matches(name, hash.Sum(nil))
		}
		if err != nil {
			return c.fail(name, err)
		}
	}
	return nil
}

// matches calls Show for a file that was read. It returns an error if the hash differs from the
// manifest's.
func (c *Checkpoint) matches(name string, sum []byte) error {
	if c.Show != nil {
		c.Show(c.Files[name].Bytes)
	}
	if got, want := hex.EncodeToString(sum), c.Files[name].SHA256; got != want {
		return fmt.Errorf("SHA-256 %s, the manifest says %s", got, want)
	}
	return nil
}

func (c *Checkpoint) fail(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) && c.IsRemoved(err) {
		err = fmt.Errorf("%w: the run has removed this checkpoint meanwhile", err)
	}
	return fmt.Errorf("checkpoint %s: %s: %w", c.Dir, name, err)
}

// Run returns the state of the run besides its layers. It returns nil for older checkpoints, which
// have none.
func (c *Checkpoint) Run() ([]byte, error) {
	if _, ok := c.Files[runFile]; !ok {
		return nil, nil
	}
	if err := c.read(runFile, mostRun); err != nil {
		return nil, err
	}
	return slices.Clone(c.text), nil
}

// read reads a whole file of at most limit bytes into c.text and checks its hash.
func (c *Checkpoint) read(name string, limit int64) error {
	content, done, err := c.file(name, limit)
	if err != nil {
		return c.fail(name, err)
	}
	size := content.Size()
	if int64(cap(c.text)) < size {
		c.text = make([]byte, size)
	}
	c.text = c.text[:size]
	_, err = io.ReadFull(content, c.text)
	if err = errors.Join(err, done()); err != nil {
		return c.fail(name, err)
	}
	sum := sha256.Sum256(c.text)
	if err := c.matches(name, sum[:]); err != nil {
		return c.fail(name, err)
	}
	return nil
}

// open reads a file of a layer and parses its header.
func (c *Checkpoint) open(name string) (*weights.File, error) {
	if err := c.read(name, files.Unbound); err != nil {
		return nil, err
	}
	file, err := weights.Parse(name, bytes.NewReader(c.text), int64(len(c.text)))
	if err != nil {
		return nil, c.fail(name, err)
	}
	return file, nil
}

// fillPieces sets pieces from the tensors with the same names in the file that was opened last. A
// file with other tensors, or without one of them, is an error.
func (c *Checkpoint) fillPieces(pieces []model.StateTensor, f *weights.File, d device.Device) error {
	if len(pieces) != len(f.Tensors) {
		return c.fail(f.Name, fmt.Errorf("%d tensors, want %d", len(f.Tensors), len(pieces)))
	}
	for _, p := range pieces {
		want := describe(p)
		at := slices.IndexFunc(f.Tensors, func(t weights.Tensor) bool { return t.Name == p.Name })
		if at < 0 {
			return c.fail(f.Name, fmt.Errorf("tensor %q is missing", p.Name))
		}
		t := f.Tensors[at]
		if t.DType != want.DType || !slices.Equal(t.Shape, want.Shape) {
			return c.fail(f.Name, fmt.Errorf("tensor %q: %s %v, want %s %v", p.Name, t.DType, t.Shape, want.DType, want.Shape))
		}
		if p.Mem.Bytes == 0 {
			continue
		}
		mirror := device.Mirror(p.Mem)
		copy(tensor.Of[byte](mirror), c.text[f.Offset(t)+p.First:])
		if err := device.Write(d, p.Mem, mirror); err != nil {
			return c.fail(f.Name, fmt.Errorf("tensor %q: %w", p.Name, err))
		}
	}
	return nil
}
