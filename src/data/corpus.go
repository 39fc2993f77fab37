package data

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"dynmo/src/config"
)

// Separator is the byte between two documents. No text has it.
const Separator = 0

// Corpus is text in memory (one byte for each token), a token file, or parts of either. It never
// changes, so goroutines may share it.
type Corpus struct {
	content content
	extents []extent // parts of content, in order
	tokens  int      // total over all extents
	held    *Corpus  // validation data; nil if there is none
	files   int
	text    bool // every byte is a token
	hash    func() string
	changed func() error // see Batches.Err
	weights []float64    // by file: share of the sequences that begin in it; nil: by its tokens
}

// Held returns the validation data; nil if there is none.
func (c *Corpus) Held() *Corpus { return c.held }

// Summary describes the data of a run, without validation data from elsewhere.
type Summary struct {
	Files  int
	Tokens int
	Text   bool   // every byte is a token
	Hash   string // see Corpus.Hash
}

// Summary describes the corpus.
func (c *Corpus) Summary() Summary { return Summary{c.files, c.content.count(), c.text, c.Hash()} }

// Open reads the corpus that cfg names: a file, a directory, or a pattern of files. From a directory it
// reads all files whose names end in one of cfg.Extensions, in the lexical order of a walk that follows
// links. Files whose names end in .bin, unless they are text, are token files (see OpenTokens): their ids
// must be in [0, vocab). They stay mapped until the program ends. Any other file has documents (see
// File.Documents), in UTF-8 without 0 bytes; one 0 byte stands between two documents. An empty path
// stands for the source files of the Go toolchain. cfg.LimitBytes limits the text, or the ids of a token
// file. cfg.Validation names other data, or a share of this data that is held out (see holdOut). Held
// returns the validation data.
//
// sequence is the number of tokens in a sequence. Open panics if vocab is less than the number of
// byte values. Errors: the corpus or the validation data is missing, empty, unreadable, no text, or
// shorter than a sequence and its last target; a token file is malformed; only one of the two is a
// token file.
func Open(cfg config.Data, vocab, sequence int) (*Corpus, error) {
	if vocab < 256 {
		panic("data: the vocabulary is smaller than a byte")
	}
	path, extensions := cfg.Path, cfg.Extensions
	if path == "" {
		if len(extensions) == 0 {
			extensions = []string{".go"}
		}
		var err error
		if path, err = goSource("/usr/local/go", "/usr/lib/go"); err != nil {
			return nil, fmt.Errorf("data: %w", err)
		}
	}
	keys := strings.Split(cfg.JSONKey, ",")
	s := source{
		key: "data.path", path: path, extensions: extensions, limit: cfg.LimitBytes, keys: keys, raw: strings.TrimPrefix(cfg.DType, "auto"),
		weights: cfg.Weights, vocab: vocab, sequence: sequence,
	}
	c, err := s.open()
	switch share := cfg.HeldOut(); {
	case err != nil:
		return nil, err
	case cfg.Validation == "":
		return c, s.checkWeights(c)
	case share > 0:
		return c, cmp.Or(s.holdOut(c, share), s.checkWeights(c))
	}
	if onePlace(path, cfg.Validation) {
		return nil, fmt.Errorf("data: data.validation = %q is data.path, on which the run trains: wanted other data, or the share to hold out, such as 0.05", cfg.Validation)
	}
	other := source{key: "data.validation", path: cfg.Validation, extensions: extensions, keys: keys, raw: strings.TrimPrefix(cfg.DType, "auto"), vocab: vocab, sequence: sequence}
	if c.held, err = other.open(); err != nil {
		return nil, err
	}
	if s.isText() != other.isText() {
		return nil, fmt.Errorf("data: data.validation = %q: %s, and data.path is %s: wanted tokens of one vocabulary (dynmo data prepare)",
			other.path, other.kind(), s.kind())
	}
	return c, s.checkWeights(c)
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
	keys            []string // members of records that have the text
	raw             string   // element type of token files without a header
	weights         string   // of token files, in order
	vocab, sequence int
	tokens          []*Tokens // token files; nil for text
	documents       []int     // of text: where documents end, with the separator
	files           int       // of text
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

// withPlace adds the absolute path to the error of a relative path at which nothing lies.
func (s *source) withPlace(err error) error {
	_, missing := os.Stat(s.path)
	place, failed := filepath.Abs(s.path)
	if !errors.Is(missing, fs.ErrNotExist) || failed != nil || filepath.IsAbs(s.path) {
		return err
	}
	return fmt.Errorf("%w (looked for %s)", err, place)
}

func (s *source) open() (*Corpus, error) {
	list, err := List(s.path, s.extensions, s.limit)
	if err != nil {
		return s.fail(s.withPlace(err))
	}
	if slices.ContainsFunc(list, File.hasTokens) {
		if s.limit > 0 { // the limit is on ids, not on files
			if list, err = List(s.path, s.extensions, 0); err != nil {
				return s.fail(err)
			}
		}
		if list, err = tokenFiles(list); err != nil {
			return s.fail(err)
		}
		return s.openTokens(list)
	}
	if s.weights != "" || s.raw != "" {
		return s.fail(errors.New("text, and data.weights and data.dtype are for token files"))
	}
	s.files = len(list)
	text, err := s.readText(list)
	if err != nil && len(list) > 1 {
		err = fmt.Errorf("%w (data.extensions picks files of a directory)", err)
	}
	if err != nil {
		return s.fail(err)
	}
	if len(text) < s.sequence+1 {
		return s.fail(s.short(len(text)))
	}
	c := newCorpus(content{newPart(ids{text, u8})}, func() error { return nil })
	c.files, c.text = len(list), true
	return c, nil
}

// hasTokens reports whether a file is a token file.
func (f File) hasTokens() bool { return isTokenFile(f.Path) && !isText(f.Path) }

// tokenFiles leaves out what lies beside token files: indices, and files of tokenizers. Other files beside
// them are an error.
func tokenFiles(list []File) ([]File, error) {
	var tokens, others []File
	for _, f := range list {
		switch {
		case f.hasTokens():
			tokens = append(tokens, f)
		case strings.HasSuffix(f.Path, ".idx") || IsTokenizerFile(filepath.Base(f.Path)):
		default:
			others = append(others, f)
		}
	}
	if len(others) > 0 {
		return nil, fmt.Errorf("token files as %s and others as %s: wanted one of the two (data.extensions, or a pattern such as %s)",
			tokens[0].Path, others[0].Path, filepath.Join(filepath.Dir(tokens[0].Path), "*.bin"))
	}
	return tokens, nil
}

func newCorpus(x content, changed func() error) *Corpus {
	c := &Corpus{content: x, changed: changed, hash: sync.OnceValue(x.hash)}
	c.take(0, x.count())
	return c
}

// short returns the error of text that is shorter than a sequence.
func (s *source) short(bytes int) error {
	found := fmt.Sprintf("found %d bytes in %d file(s)", bytes, s.files)
	if s.files == 0 && len(s.extensions) > 0 {
		found = "found no text in files ending in " + strings.Join(s.extensions, ", ") + " (data.extensions; [] reads every file)"
	}
	if s.limit > 0 && s.limit <= int64(s.sequence) {
		found += fmt.Sprintf(" (data.limit_bytes = %d)", s.limit)
	}
	return fmt.Errorf("wanted at least %d bytes, a sequence (model.sequence = %d) and the token after it; %s",
		s.sequence+1, s.sequence, found)
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
