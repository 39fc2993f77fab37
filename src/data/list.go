package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"dynmo/src/files"
)

// File is a file of text or tokens and its size in bytes.
type File struct {
	Path string
	Size int64
}

// List returns the files that are not empty at a path: a file, a directory, or a pattern (see
// filepath.Match). Links are followed. Files of a directory come in the lexical order of a walk, as far as
// their names end in one of the extensions (none: all). It stops after the file that reaches limit bytes (0
// means no limit). A link to nothing, and links in a circle, are errors that name them.
func List(path string, extensions []string, limit int64) ([]File, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(path, "*?[") {
		paths, err := filepath.Glob(path)
		if err != nil || len(paths) == 0 {
			return nil, errors.New("no file has a name of this pattern")
		}
		w := walk{limit: limit}
		for _, path := range paths {
			if err := w.visit(path, nil); err != nil {
				return nil, err
			}
		}
		return w.files, nil
	}
	if err != nil {
		return nil, cause(err)
	}
	if !info.Mode().IsRegular() && !info.IsDir() {
		_, _, err := files.Regular(path, files.Unbound)
		return nil, errors.New(strings.TrimPrefix(fmt.Sprint(err), path+": ")) // the caller's message names the path
	}
	if info.Mode().IsRegular() {
		return []File{{path, info.Size()}}, nil
	}
	w := walk{extensions: extensions, limit: limit}
	err = w.visit(path, nil)
	return w.files, err
}

// walk goes through directories.
type walk struct {
	extensions []string
	limit      int64
	files      []File
	total      int64
}

// visit adds the files at a path. within are the directories that it is in.
func (w *walk) visit(path string, within []fs.FileInfo) error {
	if w.limit > 0 && w.total >= w.limit {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.Mode().IsRegular():
		if info.Size() > 0 && (within == nil || w.wanted(path)) {
			w.files = append(w.files, File{path, info.Size()})
			w.total += info.Size()
		}
		return nil
	case !info.IsDir():
		return nil // a socket, a device
	case slices.ContainsFunc(within, func(outer fs.FileInfo) bool { return os.SameFile(outer, info) }):
		return fmt.Errorf("%s: a link to a directory that it is in", path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	within = append(slices.Clone(within), info)
	for _, e := range entries {
		if err := w.visit(filepath.Join(path, e.Name()), within); err != nil {
			return err
		}
	}
	return nil
}

// wanted reports whether a file name has one of the endings, or whether there are no endings.
func (w *walk) wanted(path string) bool {
	return len(w.extensions) == 0 ||
		slices.ContainsFunc(w.extensions, func(ending string) bool { return strings.HasSuffix(path, ending) })
}
