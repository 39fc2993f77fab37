package store

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"dynmo/src/checkpoint"
)

// The umask takes bits from these.
const (
	directoryMode = 0o777
	fileMode      = 0o666
)

// Write writes the snapshot's files for a checkpoint after so many steps below dir, the
// checkpoints' directory, under the temporary name. All ranks write into one directory
// at once. Every file is on disk when it returns. Where one fails none of this rank's
// is left.
func (s *Snapshot) Write(dir string, step int) (map[string]File, error) {
	at := filepath.Join(dir, Name(step)+unfinished)
	if err := os.MkdirAll(at, directoryMode); err != nil {
		return nil, err
	}
	files := make(map[string]File)
	for _, c := range s.files {
		path := filepath.Join(at, c.name)
		f, err := c.write(path)
		if err != nil {
			for name := range files {
				err = errors.Join(err, os.Remove(filepath.Join(at, name)))
			}
			return nil, err
		}
		files[c.name] = f
	}
	return files, nil
}

// write writes one file, and returns its length and hash.
func (c content) write(path string) (file File, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return file, err
	}
	hash := sha256.New()
	count := &counter{w: io.MultiWriter(f, hash)}
	out := bufio.NewWriterSize(count, 1<<20)
	err = checkpoint.Write(out, c.metadata, c.tensors, func(t checkpoint.Tensor) ([]byte, error) { return c.values[t.Name], nil })
	err = cmp.Or(err, out.Flush(), f.Sync(), f.Close())
	if err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return file, fmt.Errorf("%s: %w", path, err)
	}
	return File{count.n, hex.EncodeToString(hash.Sum(nil))}, nil
}

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Commit makes a checkpoint of the files that all ranks wrote: its manifest first, then
// its name. Then it removes checkpoints that are older than the last so many. It is
// called by one rank when all others have written.
func Commit(dir string, m Manifest, keep int) error {
	m.Format = Format
	at, name := filepath.Join(dir, Name(m.Step)), Name(m.Step)
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := cmp.Or(m.check(), create(filepath.Join(at+unfinished, ManifestFile), text), synced(at+unfinished)); err != nil {
		return err
	}
	if _, err := Open(at + unfinished); err != nil {
		return fmt.Errorf("%w: do all ranks see this directory?", err)
	}
	if err := os.RemoveAll(at); err != nil { // of a run that was resumed from an earlier one
		return err
	}
	if err := cmp.Or(os.Rename(at+unfinished, at), synced(dir)); err != nil {
		return err
	}
	latest := filepath.Join(dir, latestFile)
	if err := os.Remove(latest + unfinished); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := cmp.Or(create(latest+unfinished, []byte(name+"\n")), os.Rename(latest+unfinished, latest), synced(dir)); err != nil {
		return err
	}
	return prune(dir, m.Step, keep)
}

// create writes a new file to disk.
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(cmp.Or(err, f.Sync()), f.Close())
}

// synced writes a directory to disk.
func synced(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// prune removes all but the newest so many checkpoints up to a step. Later ones are of
// a run that was resumed before them, and go too.
func prune(dir string, step, keep int) error {
	names, err := list(dir)
	if err != nil {
		return err
	}
	kept := 0
	for _, name := range names {
		if name <= Name(step) && kept < keep {
			kept++
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// Discard removes what was written of a checkpoint that has no name of its own.
func Discard(dir string, step int) error {
	return os.RemoveAll(filepath.Join(dir, Name(step)+unfinished))
}

// Clean removes what earlier runs began and did not end.
func Clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), unfinished) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
