package data

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"dynmo/src/config"
	"dynmo/src/input"
)

// separator stands between two files of a directory: a byte that no text has.
const separator = 0

// Corpus is text in memory, a byte a token, or a token file. It never changes,
// so goroutines may share it.
type Corpus struct {
	ids  ids
	hash func() string
}

// Open reads the corpus that cfg names. A file whose name ends in .bin, unless it is
// text, is a token file (see OpenTokens), whose ids must lie in [0, vocab); it stays
// mapped until the program ends. Any other file is text in UTF-8, read as it is: no byte
// of it is 0. Of a directory, all regular files whose name ends in one of cfg.Extensions are
// read in the lexical order of a walk, with one 0 byte between two files;
// symbolic links below the directory are not followed. An empty path stands
// for the source tree of the Go toolchain. cfg.LimitBytes ends text, or the
// ids of a token file, early.
//
// sequence is the number of tokens in a sequence. Open panics if a vocabulary
// of vocab tokens cannot hold a byte. Errors: the corpus is missing, empty,
// unreadable, no text, shorter than a sequence and the token after it, or a token
// file that is malformed.
func Open(cfg config.Data, vocab, sequence int) (*Corpus, error) {
	if vocab < 256 {
		panic("data: the vocabulary is smaller than a byte")
	}
	path := cfg.Path
	if path == "" {
		var err error
		if path, err = goSource("/usr/local/go", "/usr/lib/go"); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
	}
	fail := func(err error) (*Corpus, error) {
		return nil, fmt.Errorf("data: data.path = %q: %w", path, err)
	}
	if isTokenFile(path) {
		info, err := os.Stat(path)
		if err != nil {
			return fail(cause(err))
		}
		if !info.IsDir() && !isText(path) {
			return openTokens(path, cfg.LimitBytes, vocab, sequence)
		}
	}
	files, err := list(path, cfg.Extensions, cfg.LimitBytes)
	if err != nil {
		return fail(err)
	}
	text, err := read(files, cfg.LimitBytes)
	if err != nil {
		return fail(err)
	}
	if len(text) < sequence+1 {
		return fail(short(len(text), len(files), cfg, sequence))
	}
	return newCorpus(ids{text, u8}), nil
}

func newCorpus(x ids) *Corpus {
	return &Corpus{ids: x, hash: sync.OnceValue(func() string {
		sum := sha256.Sum256(x.raw)
		return hex.EncodeToString(sum[:])
	})}
}

// openTokens returns the corpus of a token file, or of its first limit bytes
// of ids (0 means all).
func openTokens(path string, limit int64, vocab, sequence int) (*Corpus, error) {
	t, err := OpenTokens(path)
	if err != nil {
		return nil, fmt.Errorf("data: data.path: %w", err)
	}
	total := t.Len()
	t.ids = t.ids.limit(limit)
	if err = t.Check(vocab); err == nil && t.Len() < sequence+1 {
		found := fmt.Sprint(total)
		if t.Len() < total {
			found = fmt.Sprintf("%d of %d (data.limit_bytes = %d)", t.Len(), total, limit)
		}
		err = fmt.Errorf("%s: wanted at least %d tokens, a sequence (model.sequence = %d) and the token after it; found %s",
			path, sequence+1, sequence, found)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data: data.path: %w", err), t.Close())
	}
	return newCorpus(t.ids), nil
}

// short is the error of a corpus that holds no sequence.
func short(bytes, files int, cfg config.Data, sequence int) error {
	found := fmt.Sprintf("found %d bytes in %d file(s)", bytes, files)
	if files == 0 && len(cfg.Extensions) > 0 {
		found = "found no text in files ending in " + strings.Join(cfg.Extensions, ", ") + " (data.extensions; [] reads every file)"
	}
	if cfg.LimitBytes > 0 && cfg.LimitBytes <= int64(sequence) {
		found += fmt.Sprintf(" (data.limit_bytes = %d)", cfg.LimitBytes)
	}
	return fmt.Errorf("wanted at least %d bytes, a sequence (model.sequence = %d) and the token after it; %s",
		sequence+1, sequence, found)
}

// file is a file of the corpus and its size in bytes.
type file struct {
	path string
	size int64
}

// list returns the files of the corpus that are not empty, up to the one that
// reaches limit bytes (0 means no limit).
func list(path string, extensions []string, limit int64) ([]file, error) {
	root, err := filepath.EvalSymlinks(path) // a walk does not start at a link
	if err != nil {
		return nil, cause(err)
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, cause(err)
	}
	if info.Mode().IsRegular() {
		return []file{{root, info.Size()}}, nil
	}
	if !info.IsDir() {
		return nil, errors.New("wanted a regular file or a directory")
	}
	var files []file
	total := int64(0)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() || !listed(path, extensions) {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		files = append(files, file{path, info.Size()})
		if total += info.Size(); limit > 0 && total >= limit {
			return fs.SkipAll
		}
		return nil
	})
	return files, err
}

// listed reports whether a file name has one of the endings; all have where
// there are none.
func listed(path string, extensions []string) bool {
	return len(extensions) == 0 ||
		slices.ContainsFunc(extensions, func(ending string) bool { return strings.HasSuffix(path, ending) })
}

// read returns the files' text with separators, at most limit bytes of it (0
// means all).
func read(files []file, limit int64) ([]byte, error) {
	total := int64(max(0, len(files)-1))
	for _, f := range files {
		total += f.size
	}
	if limit > 0 {
		total = min(total, limit)
	}
	if total > input.Text {
		return nil, fmt.Errorf("%d bytes of text, wanted at most %d (data.limit_bytes), or a token file of them (dynmo data prepare)", total, int64(input.Text))
	}
	text := make([]byte, total)
	begin := int64(0)
	for _, f := range files {
		if begin > 0 && begin < total {
			text[begin] = separator
			begin++
		}
		end := min(total, begin+f.size)
		if err := fill(text[begin:end], f); err != nil {
			return nil, err
		}
		begin = end
	}
	return text, nil
}

// fill reads the first len(dst) bytes of a file, which must be text.
func fill(dst []byte, source file) error {
	f, _, err := input.Regular(source.path, input.Unbound)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := io.ReadFull(f, dst); err != nil {
		return fmt.Errorf("%s: %d of %d bytes read: %w", source.path, n, len(dst), err)
	}
	at := invalid(dst)
	if int64(len(dst)) < source.size {
		at = invalidBeginning(dst)
	}
	if at < len(dst) {
		return fmt.Errorf("%s: byte %d: %w", source.path, at, noText(dst[at]))
	}
	return nil
}

// cause drops the path from a file error: the caller's message names it.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Hash returns the SHA-256 of the text, or of the ids as they lie in the token
// file, in hexadecimal, computed once.
func (c *Corpus) Hash() string { return c.hash() }
