package record

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// mostKept bounds the bytes that a file keeps in memory while the disk takes none: thousands of
// steps.
const mostKept = 64 << 20

// errDropped is the error of an entry that is neither on disk nor kept.
var errDropped = errors.New("dropped")

// appendFile is a file of entries: lines, or records of TensorBoard. An entry that the disk does not
// take, such as a full one, is kept and written before the next one. So a run goes on without room
// for its records.
type appendFile struct {
	*os.File
	kept    [][]byte // entries that are not on disk yet
	bytes   int      // of kept
	part    int      // bytes of kept[0] that are on disk
	dropped int      // entries that were dropped, because too many bytes were kept
	failed  error    // of the last write; nil if it succeeded
}

// Write appends an entry. The error is errDropped, or nil.
func (a *appendFile) Write(entry []byte) (int, error) {
	if a.bytes > 0 && a.bytes+len(entry) > mostKept {
		a.dropped++
		return 0, errDropped
	}
	a.kept = append(a.kept, entry)
	a.bytes += len(entry)
	a.flush()
	return len(entry), nil
}

// flush writes the kept entries.
func (a *appendFile) flush() {
	a.failed = nil
	for len(a.kept) > 0 && a.failed == nil {
		var n int
		n, a.failed = a.File.Write(a.kept[0][a.part:])
		if a.part += n; a.failed == nil {
			a.bytes -= len(a.kept[0])
			a.kept, a.part = a.kept[1:], 0
		}
	}
}

// close tries a last time to write the kept entries, and closes the file. It removes an entry that
// is on disk in part. missing says what the file lacks; "" if nothing.
func (a *appendFile) close() (missing string) {
	a.flush()
	if info, err := a.Stat(); a.part > 0 && err == nil {
		_ = a.Truncate(info.Size() - int64(a.part)) // readers, too, leave out a torn last line
	}
	failed := cmp.Or(a.failed, a.Close()) // a disk may refuse earlier writes only now
	name, lost := filepath.Base(a.Name()), len(a.kept)+a.dropped
	switch {
	case lost > 0 && filepath.Ext(name) == ".jsonl":
		missing = fmt.Sprintf("%s lacks %d lines", name, lost)
	case lost > 0 || failed != nil:
		missing = name + " is incomplete"
	}
	if failed != nil {
		missing += fmt.Sprintf(": %v", errors.Unwrap(failed))
	}
	return missing
}
