package data

import (
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
	"dynmo/src/files"
)

// Separator is the byte between two files of a directory. No text has it.
const Separator = 0

// Corpus is text in memory (one byte for each token), a token file, or parts of either. It never
// changes, so goroutines may share it.
type Corpus struct {
	ids     ids
	extents []extent // parts of ids, in order
	tokens  int      // total over all extents
	held    *Corpus  // validation data; nil if there is none
	hash    func() string
	changed func() error // see Batches.Err
}

// Held returns the validation data; nil if there is none.
func (c *Corpus) Held() *Corpus { return c.held }

// Open reads the corpus that cfg names. A file whose name ends in .bin, unless it is text, is a
// token file (see OpenTokens): its ids must be in [0, vocab). It stays mapped until the program
// ends. Any other file is text in UTF-8 without 0 bytes. From a directory Open reads all regular
// files whose names end in one of cfg.Extensions. They come in the lexical order of a walk, with
// one 0 byte between two files. It does not follow symbolic links below the directory. An empty
// path stands for the source tree of the Go toolchain. cfg.LimitBytes limits the text, or the ids
// of a token file. cfg.Validation names other data, or a share of this data that is held out (see
// holdOut). Held returns the validation data.
//
// sequence is the number of tokens in a sequence. Open panics if vocab is less than the number of
// byte values. Errors: the corpus or the validation data is missing, empty, unreadable, no text, or
// shorter than a sequence and its last target; a token file is malformed; only one of the two is a
// token file.
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
	s := source{key: "data.path", path: path, extensions: cfg.Extensions, limit: cfg.LimitBytes, vocab: vocab, sequence: sequence}
	c, err := s.open()
	switch share := cfg.HeldOut(); {
	case err != nil, cfg.Validation == "":
		return c, err
	case share > 0:
		return c, s.holdOut(c, share)
	}
	if onePlace(path, cfg.Validation) {
		return nil, fmt.Errorf("data: data.validation = %q is data.path, on which the run trains: wanted other data, or the share to hold out, such as 0.05", cfg.Validation)
	}
	other := source{key: "data.validation", path: cfg.Validation, extensions: cfg.Extensions, vocab: vocab, sequence: sequence}
	if c.held, err = other.open(); err != nil {
		return nil, err
	}
	if s.isText() != other.isText() {
		return nil, fmt.Errorf("data: data.validation = %q: %s, and data.path is %s: wanted tokens of one vocabulary (dynmo data prepare)",
			other.path, other.kind(), s.kind())
	}
	return c, nil
}

// onePlace reports whether two paths refer to one file or directory.
func onePlace(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// source is the origin of a corpus, with the limits on it.
type source struct {
	key             string // setting that has the path
	path            string
	extensions      []string
	limit           int64
	vocab, sequence int
	files           []File  // files of text
	tokens          *Tokens // token file; nil for text
}

func (s *source) isText() bool { return s.tokens == nil }

func (s *source) kind() string {
	if s.isText() {
		return "text, whose bytes are the tokens"
	}
	return "a token file"
}

func (s *source) fail(err error) (*Corpus, error) {
	return nil, fmt.Errorf("data: %s = %q: %w", s.key, s.path, err)
}

func (s *source) open() (*Corpus, error) {
	if isTokenFile(s.path) {
		info, err := os.Stat(s.path)
		if err != nil {
			return s.fail(cause(err))
		}
		if !info.IsDir() && !isText(s.path) {
			return s.openTokens()
		}
	}
	var err error
	if s.files, err = List(s.path, s.extensions, s.limit); err != nil {
		return s.fail(err)
	}
	text, err := read(s.files, s.limit)
	if err != nil {
		return s.fail(err)
	}
	if len(text) < s.sequence+1 {
		return s.fail(s.short(len(text)))
	}
	return newCorpus(ids{text, u8}, func() error { return nil }), nil
}

func newCorpus(x ids, changed func() error) *Corpus {
	c := &Corpus{ids: x, changed: changed, hash: sync.OnceValue(x.hash)}
	c.take(0, x.count())
	return c
}

// openTokens returns the corpus of a token file, limited to `limit` bytes of ids (0 means all).
func (s *source) openTokens() (*Corpus, error) {
	t, err := OpenTokens(s.path)
	if err != nil {
		return nil, fmt.Errorf("data: %s: %w", s.key, err)
	}
	total := t.Len()
	t.ids = t.ids.limit(s.limit)
	if err = t.Check(s.vocab); err == nil && t.Len() < s.sequence+1 {
		found := fmt.Sprint(total)
		if t.Len() < total {
			found = fmt.Sprintf("%d of %d (data.limit_bytes = %d)", t.Len(), total, s.limit)
		}
		err = fmt.Errorf("%s: wanted at least %d tokens, a sequence (model.sequence = %d) and the token after it; found %s",
			s.path, s.sequence+1, s.sequence, found)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data: %s: %w", s.key, err), t.Close())
	}
	s.tokens = t
	var c *Corpus
	c = newCorpus(t.ids, func() error {
		if err := t.Changed(c.Hash()); err != nil {
			return fmt.Errorf("data: %s: %w", s.key, err)
		}
		return nil
	})
	return c, nil
}

// short returns the error of text that is shorter than a sequence.
func (s *source) short(bytes int) error {
	found := fmt.Sprintf("found %d bytes in %d file(s)", bytes, len(s.files))
	if len(s.files) == 0 && len(s.extensions) > 0 {
		found = "found no text in files ending in " + strings.Join(s.extensions, ", ") + " (data.extensions; [] reads every file)"
	}
	if s.limit > 0 && s.limit <= int64(s.sequence) {
		found += fmt.Sprintf(" (data.limit_bytes = %d)", s.limit)
	}
	return fmt.Errorf("wanted at least %d bytes, a sequence (model.sequence = %d) and the token after it; %s",
		s.sequence+1, s.sequence, found)
}

// File is a file of text and its size in bytes.
type File struct {
	Path string
	Size int64
}

// List returns the files at a path that are not empty. It stops after the file that reaches
// limit bytes (0 means no limit).
func List(path string, extensions []string, limit int64) ([]File, error) {
	root, err := filepath.EvalSymlinks(path) // a walk does not follow a link at its root
	if err != nil {
		return nil, cause(err)
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, cause(err)
	}
	if info.Mode().IsRegular() {
		return []File{{root, info.Size()}}, nil
	}
	if !info.IsDir() {
		return nil, errors.New("wanted a regular file or a directory")
	}
	var files []File
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
		files = append(files, File{path, info.Size()})
		if total += info.Size(); limit > 0 && total >= limit {
			return fs.SkipAll
		}
		return nil
	})
	return files, err
}

// listed reports whether a file name has one of the endings, or whether there are no endings.
func listed(path string, extensions []string) bool {
	return len(extensions) == 0 ||
		slices.ContainsFunc(extensions, func(ending string) bool { return strings.HasSuffix(path, ending) })
}

// read returns the text of the files with separators, at most limit bytes (0 means all).
func read(list []File, limit int64) ([]byte, error) {
	total := int64(max(0, len(list)-1))
	for _, f := range list {
		total += f.Size
	}
	if limit > 0 {
		total = min(total, limit)
	}
	if total > files.Text {
		return nil, fmt.Errorf("%d bytes of text, wanted at most %d (data.limit_bytes), or a token file of them (dynmo data prepare)", total, int64(files.Text))
	}
	text := make([]byte, total)
	begin := int64(0)
	for _, f := range list {
		if begin > 0 && begin < total {
			text[begin] = Separator
			begin++
		}
		end := min(total, begin+f.Size)
		if err := fill(text[begin:end], f); err != nil {
			return nil, err
		}
		begin = end
	}
	return text, nil
}

// fill reads the first len(dst) bytes of a file, which must be text.
func fill(dst []byte, source File) error {
	f, _, err := files.Regular(source.Path, files.Unbound)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := io.ReadFull(f, dst); err != nil {
		return fmt.Errorf("%s: %d of %d bytes read: %w", source.Path, n, len(dst), err)
	}
	at := Invalid(dst)
	if int64(len(dst)) < source.Size {
		at = invalidBeginning(dst)
	}
	if at < len(dst) {
		return fmt.Errorf("%s: byte %d: %w", source.Path, at, NoText(dst[at]))
	}
	return nil
}

// cause drops the path from a file error, because the caller's message names the path.
func cause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

// Hash returns the SHA-256 of the text, or of the ids in the form of the token file, in
// hexadecimal. It includes the validation data. It is computed once.
func (c *Corpus) Hash() string { return c.hash() }
