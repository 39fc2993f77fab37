package files

import (
	"os"
	"path/filepath"
	"sync"
	"time"
)

// temporaries are the files and directories of this process under temporary names. Its lock is held
// while one gets its own name, so that Abandon finds all of it or nothing.
var temporaries struct {
	sync.Mutex
	paths map[string]bool
}

// track notes a path before anything is made there.
func track(path string) {
	temporaries.Lock()
	defer temporaries.Unlock()
	if temporaries.paths == nil {
		temporaries.paths = make(map[string]bool)
	}
	temporaries.paths[path] = true
}

// discard removes what is at a tracked path, and forgets the path.
func discard(path string) {
	_ = os.RemoveAll(path) // after success it is gone, or empty
	temporaries.Lock()
	defer temporaries.Unlock()
	delete(temporaries.paths, path)
}

// locked calls a function that gives temporary files their own names.
func locked(rename func() error) error {
	temporaries.Lock()
	defer temporaries.Unlock()
	return rename()
}

// Scratch makes a temporary directory below dir, whose name begins with prefix. remove removes the
// directory with all files in it.
func Scratch(dir, prefix string) (path string, remove func(), err error) {
	path = beside(filepath.Join(dir, prefix))
	track(path)
	remove = func() { discard(path) }
	if err := os.Mkdir(path, 0o700); err != nil {
		remove()
		return "", nil, err
	}
	return path, remove, nil
}

// Abandon removes every temporary file and directory. A process calls it right before it ends: no
// later file gets its name.
func Abandon() {
	temporaries.Lock() // for good
	removeAll()
}

// removeAll removes every tracked path. Another goroutine may still write into a directory, so
// removing is tried for a second.
func removeAll() {
	for path := range temporaries.paths {
		for range 100 {
			if os.RemoveAll(path) == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}
