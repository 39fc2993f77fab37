package record

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"dynmo/src/config"
)

// Files of a run directory. TensorBoard's file is in the same directory, under the name that
// TensorBoard needs.
const (
	SettingsFile   = "config.toml"     // resolved settings
	ProvenanceFile = "provenance.json" // place, time and program of the run
	MetricsFile    = "metrics.jsonl"   // a Metrics for each line
	EventsFile     = "events.jsonl"    // an Event for each line
	CostsFile      = "costs.jsonl"     // a Phase for each line
	TraceFile      = "trace.json"      // timelines of some steps, for Chrome's trace viewer and Perfetto
	SummaryFile    = "summary.json"    // a Summary; empty until the run ends, and absent from older ones
	releasedFile   = "released"        // nodes that this start of the run has given back or gives back, one for each line
	productsFile   = "products.json"   // the chosen algorithms of dense products, if they were chosen
	nextFile       = "next.json"       // the allocation for the next start, if the run ended to start again

	// TokenizerDir has the files of the tokenizer for the run's tokens, if they are known.
	TokenizerDir = "tokenizer"
	// CheckpointDir has the checkpoints of the run.
	CheckpointDir = "ckpt"
	// SourceDir has the configuration of the weights that the run began with.
	SourceDir = "source"
)

// Modes of new directories and files. The umask removes bits from them.
const (
	directoryMode = 0o777
	fileMode      = 0o666
)

// runFiles lists the files that a run directory may have, including checkpoints. If one of them exists
// the directory has a run.
var runFiles = []string{MetricsFile, EventsFile, CostsFile, TraceFile, SettingsFile, ProvenanceFile, SummaryFile, releasedFile, nextFile, productsFile, TokenizerDir, SourceDir, CheckpointDir}

// more matches the other files of a run: files of earlier starts, and TensorBoard's files.
var more = []string{earlier(SettingsFile, "*"), earlier(ProvenanceFile, "*"), boardPrefix + "*"}

// longest is the largest number of characters of the run's name in the name of a new directory.
// File systems allow 255 bytes.
const longest = 60

// Open makes dir if it is missing, and all files of a new run in it, so that no file can fail to
// open later. Directories and files follow the umask. Errors: dir already has a run; every user may
// replace its files; dir is not writable.
func Open(dir, settings string, p Provenance) (*Run, error) { return openIn(dir, settings, p, false) }

// Replace is Open, but first removes the files of a run in dir.
func Replace(dir, settings string, p Provenance) (*Run, error) {
	return openIn(dir, settings, p, true)
}

// Create is Open in a new directory below parent, NAME-YYYYmmdd-HHMMSS. If that exists a number is
// appended. Characters of name other than letters, digits, dots and underscores become hyphens.
func Create(parent, name string, at time.Time, settings string, p Provenance) (*Run, error) {
	if err := os.MkdirAll(parent, directoryMode); err != nil {
		return nil, wrap(err)
	}
	first := filepath.Join(parent, plain(name)+at.Format("-20060102-150405"))
	dir := first
	for n := 2; ; n++ {
		err := os.Mkdir(dir, directoryMode)
		if err == nil {
			l, err := takeLock(dir)
			if err != nil {
				return nil, wrap(err)
			}
			return fill(l, dir, settings, p, true)
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, wrap(err)
		}
		dir = fmt.Sprintf("%s-%d", first, n)
	}
}

// plain converts a run's name to a part of a file name.
func plain(name string) string {
	var b strings.Builder
	for i, r := range []rune(name) {
		switch {
		case i == longest:
			return b.String()
		case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '.' && i > 0: // a leading dot would make a hidden directory
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	if b.Len() == 0 {
		return "run"
	}
	return b.String()
}

func openIn(dir, settings string, p Provenance, force bool) (*Run, error) {
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("record: run directory %s: %w", dir, err) }
	_, err := os.Lstat(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, directoryMode); err != nil {
		return nil, wrap(err)
	}
	if !made {
		if err := private(dir); err != nil {
			return fail(err)
		}
	}
	l, err := takeLock(dir)
	if err != nil {
		return fail(err)
	}
	if err := vacate(dir, force); err != nil {
		_ = l.release()
		return fail(err)
	}
	return fill(l, dir, settings, p, made)
}

// private returns an error if every user may replace files of a directory.
func private(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if mode := info.Mode(); mode.Perm()&0o002 != 0 && mode&fs.ModeSticky == 0 {
		return fmt.Errorf("mode %#o lets everybody write; wanted a private directory (chmod o-w)", mode.Perm())
	}
	return nil
}

// vacate removes the files of a run from a directory if force is true. Else such a file is an
// error.
func vacate(dir string, force bool) error {
	for _, name := range runFiles {
		_, err := os.Lstat(filepath.Join(dir, name))
		if err == nil && !force {
			return fmt.Errorf("a run already lies there (%s exists): --resume goes on with it, --force writes over it", name)
		}
		if err == nil {
			err = os.RemoveAll(filepath.Join(dir, name))
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if !force {
		return nil
	}
	for _, pattern := range more {
		list, err := filepath.Glob(filepath.Join(escaped(dir), pattern))
		for _, file := range list {
			err = errors.Join(err, os.Remove(file))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// escaped quotes the characters of a path that have a meaning for filepath.Match.
func escaped(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// fill makes all files of a run in a locked directory. If one fails, fill removes those that it
// made. It also removes the directory if `made` says that it is new.
func fill(l *lock, dir, settings string, p Provenance, made bool) (*Run, error) {
	c := claims{dir: dir}
	r, err := c.run(settings, p)
	if err == nil {
		r.lock = l
		return r, nil
	}
	c.discard()
	_ = l.release()
	if made {
		_ = os.Remove(dir)
	}
	return nil, fmt.Errorf("record: run directory %s: %w", dir, err)
}

// claims is the list of files that were made in a directory.
type claims struct {
	dir  string
	made []*os.File
}

// discard removes the files.
func (c *claims) discard() {
	for _, f := range c.made {
		_ = f.Close() // some are closed already
		_ = os.Remove(f.Name())
	}
}

// file makes a new file. An existing file of that name is an error.
func (c *claims) file(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err == nil {
		c.made = append(c.made, f)
	}
	return f, err
}

// write makes a new file with contents.
func (c *claims) write(name, contents string) error {
	f, err := c.file(name)
	if err != nil {
		return err
	}
	_, err = f.WriteString(contents)
	return cmp.Or(err, f.Close())
}

// run makes the files of a run.
func (c *claims) run(settings string, p Provenance) (*Run, error) {
	r := &Run{dir: c.dir, looked: time.Now()}
	for _, f := range []struct {
		name string
		file *appendFile
	}{{MetricsFile, &r.metrics}, {EventsFile, &r.events}, {CostsFile, &r.costs}, {TraceFile, &r.traces}} {
		var err error
		if f.file.File, err = c.file(f.name); err != nil {
			return nil, err
		}
	}
	provenance, err := json.MarshalIndent(p, "", "  ")
	if err := cmp.Or(err, c.write(SettingsFile, settings), c.write(ProvenanceFile, string(provenance)+"\n"), c.write(SummaryFile, "")); err != nil {
		return nil, err
	}
	r.chrome.out = &r.traces
	if r.board, err = newBoard(c, settings, p.Host, time.Now(), 0); err != nil {
		return nil, err
	}
	return r, nil
}

// Newest returns the newest directory that Create made below parent for a run of this name. Only
// directories count for which saved reports a checkpoint. Names of directories can be alike, so the
// recorded settings decide. It returns "" if there is none.
func Newest(parent, name string, saved func(dir string) bool) (string, error) {
	entries, err := os.ReadDir(parent)
	if os.IsNotExist(err) {
		return "", nil
	}
	if err != nil {
		return "", wrap(err)
	}
	made := regexp.MustCompile(`^` + regexp.QuoteMeta(plain(name)) + `-(\d{8}-\d{6})(?:-(\d+))?$`)
	order := func(e os.DirEntry) (at string, n int) {
		m := made.FindStringSubmatch(e.Name())
		n, _ = strconv.Atoi(m[2]) // without a number: the first directory of its second
		return m[1], n
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return !made.MatchString(e.Name()) || !saved(filepath.Join(parent, e.Name()))
	})
	slices.SortFunc(entries, func(a, b os.DirEntry) int {
		atA, a1 := order(a)
		atB, b1 := order(b)
		return cmp.Or(cmp.Compare(atB, atA), cmp.Compare(b1, a1))
	})
	for _, e := range entries {
		dir := filepath.Join(parent, e.Name())
		c, _, err := config.Recorded(filepath.Join(dir, SettingsFile))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", wrap(err)
		}
		if err == nil && c.Run.Name == name {
			return dir, nil
		}
	}
	return "", nil
}
