package record

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"dynmo/src/store"
)

// Newest returns the directory that Create made last below parent for a run of that name
// of those that hold a checkpoint, damaged or not; "" where there is none.
func Newest(parent, name string) (string, error) {
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
		n, _ = strconv.Atoi(m[2]) // none: the first of its second
		return m[1], n
	}
	entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool {
		return !made.MatchString(e.Name()) || !holdsCheckpoint(filepath.Join(parent, e.Name()))
	})
	if len(entries) == 0 {
		return "", nil
	}
	last := slices.MaxFunc(entries, func(a, b os.DirEntry) int {
		atA, a1 := order(a)
		atB, b1 := order(b)
		return cmp.Or(cmp.Compare(atA, atB), cmp.Compare(a1, b1))
	})
	return filepath.Join(parent, last.Name()), nil
}

// holdsCheckpoint reports whether a run directory has a checkpoint with its own name.
func holdsCheckpoint(dir string) bool {
	list, _ := filepath.Glob(filepath.Join(escaped(dir), store.Directory, "step_*[0-9]", store.ManifestFile))
	return len(list) > 0
}
