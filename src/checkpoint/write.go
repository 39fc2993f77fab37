package checkpoint

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"dynmo/src/fault"
	"dynmo/src/weights"
)

// Modes of new directories and files. The umask removes bits from them.
const (
	directoryMode = 0o777
	fileMode      = 0o666
)

// spare is the number of bytes that must stay free in the file system, for the records of the run.
const spare = 1 << 20

// room makes the directory of checkpoints if it is missing. It returns an error unless the file
// system has room for this number of bytes and spare. A checkpoint that filled the file system
// would leave no room for the run's records.
func room(dir string, bytes int64) error {
	if err := os.MkdirAll(dir, directoryMode); err != nil {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if free := float64(fs.Bavail) * float64(fs.Bsize); free < float64(bytes)+spare {
		return fmt.Errorf("%s: %d bytes wanted, %.0f are free", dir, bytes+spare, free)
	}
	return nil
}

// atOnce is the number of files that a rank writes at a time: one is hashed while another waits for
// the disk.
const atOnce = 2

// Write writes the snapshot's files for a checkpoint after `step` steps. dir is the directory of
// checkpoints; the files go into a subdirectory with the temporary name. All ranks write into that
// subdirectory at the same time. Every file is on disk when Write returns. If a file fails, this
// rank's files are removed. Several goroutines call reached in every phase; it may be nil.
func (s *Snapshot) Write(dir string, step int, reached func(fault.Phase)) (map[string]File, error) {
	at := filepath.Join(dir, Name(step)+unfinished)
	if err := os.MkdirAll(at, directoryMode); err != nil {
		return nil, err
	}
	var all errgroup.Group
	all.SetLimit(atOnce)
	written := make([]File, len(s.files))
	for i, c := range s.files {
		all.Go(func() (err error) {
			written[i], err = c.write(filepath.Join(at, c.name), reached)
			return err
		})
	}
	err := all.Wait()
	files := make(map[string]File)
	for i, c := range s.files {
		if err == nil {
			files[c.name] = written[i]
		} else if written[i].SHA256 != "" {
			err = errors.Join(err, os.Remove(filepath.Join(at, c.name)))
		}
	}
	return files, err
}

// write writes one file, and returns its length and the hash that it computes while writing.
func (c content) write(path string, reached func(fault.Phase)) (file File, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return file, err
	}
	tell(reached, fault.Open)
	sum, hashed := sha256.New(), make(chan error, 1)
	go func() { hashed <- c.to(sum) }()
	out := &counter{w: f}
	buffer := bufio.NewWriter(out)
	err = c.to(buffer)
	tell(reached, fault.Write)
	err = cmp.Or(err, buffer.Flush())
	tell(reached, fault.Sync)
	err = cmp.Or(err, f.Sync())
	if err = cmp.Or(<-hashed, err, f.Close()); err != nil {
		_ = f.Close()
		_ = os.Remove(path)
		return file, err
	}
	return File{out.n, hex.EncodeToString(sum.Sum(nil))}, nil
}

// tell calls a function with a phase, if the function is not nil.
func tell(reached func(fault.Phase), p fault.Phase) {
	if reached != nil {
		reached(p)
	}
}

// to writes the content of the file.
func (c content) to(w io.Writer) error {
	if c.text != nil {
		_, err := w.Write(c.text)
		return err
	}
	return weights.Write(w, c.metadata, c.tensors, func(w io.Writer, t weights.Tensor) error {
		_, err := w.Write(c.values[t.Name])
		return err
	})
}

// counter counts the bytes that are written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Commit completes a checkpoint from the files of all ranks: it writes the manifest, then renames
// the directory. One rank calls it after all ranks have written. reached is that of Write.
func Commit(dir string, m Manifest, reached func(fault.Phase)) error {
	m.Format = format
	at := filepath.Join(dir, Name(m.Step))
	text, err := m.seal()
	if err != nil {
		return err
	}
	if err := cmp.Or(m.check(), create(filepath.Join(at+unfinished, ManifestFile), text), synced(at+unfinished)); err != nil {
		return err
	}
	tell(reached, fault.Manifest)
	if _, err := Open(at + unfinished); err != nil {
		return fmt.Errorf("%w: do all ranks see this directory?", err)
	}
	if err := removeWhole(at); err != nil { // left by a run that resumed from an earlier checkpoint
		return err
	}
	tell(reached, fault.Rename)
	if err := cmp.Or(os.Rename(at+unfinished, at), synced(dir)); err != nil {
		return err
	}
	tell(reached, fault.Renamed)
	return nil
}

// tidy names the checkpoint after `step` steps in LATEST, and removes all checkpoints except the
// last `keep`. The checkpoint is complete before: an error only says what is left behind. reached is
// that of Write.
func tidy(dir string, step, keep int, reached func(fault.Phase)) error {
	err := name(dir, step, reached)
	if err != nil {
		err = fmt.Errorf("%s still names an older checkpoint: %w", latestFile, err)
	}
	tell(reached, fault.Prune)
	return errors.Join(err, prune(dir, step, keep))
}

// name writes LATEST.
func name(dir string, step int, reached func(fault.Phase)) error {
	latest := filepath.Join(dir, latestFile)
	_ = os.Remove(latest + unfinished) // create reports a file that stays
	if err := create(latest+unfinished, []byte(Name(step)+"\n")); err != nil {
		_ = os.Remove(latest + unfinished)
		return err
	}
	tell(reached, fault.Latest)
	if err := os.Rename(latest+unfinished, latest); err != nil {
		return err
	}
	return synced(dir)
}

// create writes a new file and syncs it to disk.
func create(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(cmp.Or(err, f.Sync()), f.Close())
}

// synced syncs a directory to disk.
func synced(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// prune removes all checkpoints up to a step except the newest `keep`. Later checkpoints belong to
// a run that has resumed before them, and are removed too. It goes on after an error. It tries again
// to remove what an earlier call has left.
func prune(dir string, step, keep int) error {
	names, err := list(dir)
	kept := 0
	for _, name := range names {
		if name <= Name(step) && kept < keep {
			kept++
			continue
		}
		err = errors.Join(err, removeWhole(filepath.Join(dir, name)))
	}
	left, _ := os.ReadDir(dir)
	for _, e := range left {
		if strings.HasSuffix(e.Name(), removed) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// removeWhole removes a checkpoint, unless its directory is protected against writing, also from
// root. The checkpoint first gets a temporary name, so that no reader finds a part of it.
func removeWhole(at string) error {
	info, err := os.Lstat(at)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && info.IsDir() && info.Mode().Perm()&0o200 == 0 {
		err = unix.EACCES
	} else if err == nil {
		err = unix.Access(at, unix.W_OK|unix.X_OK)
	}
	away := at + removed
	if err == nil {
		err = os.RemoveAll(away)
	}
	if err == nil {
		err = os.Rename(at, away)
	}
	if err == nil {
		err = os.RemoveAll(away)
	}
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("old checkpoint %s cannot be removed and stays: %w (chmod u+w %s lets a later checkpoint remove it)", at, err, at)
	}
	if err != nil {
		return fmt.Errorf("old checkpoint %s cannot be removed and stays: %w", at, err)
	}
	return nil
}

// discard removes the files of an unfinished checkpoint.
func discard(dir string, step int) error {
	return os.RemoveAll(filepath.Join(dir, Name(step)+unfinished))
}

// clean removes the unfinished checkpoints of earlier runs.
func clean(dir string) error {
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

// unsealed replaces a manifest's own hash while the hash is computed.
var unsealed = strings.Repeat("0", 2*sha256.Size)

// seal returns the text of a manifest with its own SHA-256: the hash of the text with zeros in
// place of the hash.
func (m Manifest) seal() ([]byte, error) {
	m.SHA256 = unsealed
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	return bytes.Replace(text, []byte(unsealed), []byte(sealOf(text)), 1), nil
}

// sealed returns an error if the text of a manifest does not match its own hash.
func (m Manifest) sealed(text []byte) error {
	if m.SHA256 == "" {
		return nil // written before manifests had one
	}
	if sealOf(bytes.Replace(text, []byte(m.SHA256), []byte(unsealed), 1)) != m.SHA256 {
		return errors.New("not as it was written: its SHA-256 is another than it says")
	}
	return nil
}

func sealOf(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
