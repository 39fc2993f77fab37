package files

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"dynmo/src/expect"
)

// TestAbandon: whatever is being written when the process has to end is removed, and nothing else.
func TestAbandon(t *testing.T) {
	t.Chdir(t.TempDir())
	expect.OK(t, Write("kept", text("one")))
	_, remove, err := Scratch(".", "scratch")
	expect.OK(t, err)
	defer remove()
	f, err := Create("file")
	expect.OK(t, err)
	abandoned := func(w io.Writer) error {
		temporaries.Lock()
		defer temporaries.Unlock()
		removeAll()
		_, err := w.Write(nil)
		return err
	}
	if err := Directory("dir", func(dir string) error { return Write(filepath.Join(dir, "inner"), abandoned) }, nil); err == nil {
		t.Error("a directory that was removed got its name")
	}
	if f.Commit() == nil {
		t.Error("a file that was removed got its name")
	}
	if got := listed(t, "."); got != "kept" || len(temporaries.paths) != 1 { // the scratch directory is tracked until remove
		t.Errorf("files %s, tracked %v", got, temporaries.paths)
	}
	if _, _, err := Scratch("none", "scratch"); !os.IsNotExist(err) {
		t.Errorf("%v, want that the directory does not exist", err)
	}
}
