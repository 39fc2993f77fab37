package data

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"dynmo/src/files"
)

// Format is a format of token files.
type Format string

// The formats of token files.
const (
	LLMC     Format = "llmc"     // OUT.bin, as llm.c reads it
	Megatron Format = "megatron" // OUT.bin and OUT.idx, as Megatron-LM reads them
	rawIDs   Format = "raw"      // ids alone, as nanoGPT reads them
)

// Unrecorded is the number of documents if the format does not store it.
const Unrecorded = -1

// Tokens is a token file, mapped into memory. It never changes, so goroutines may share it. Changed
// reports that another program has written to the file all the same.
type Tokens struct {
	Format    Format
	Documents int64 // number of documents, or Unrecorded

	file   string // file with the ids
	offset int64  // offset of the first id in file, in bytes
	ids    ids
	index  []byte // Megatron's, checked; else nil
	maps   [][]byte
	bin    *os.File // the file with the ids
	mutex  sync.Mutex
	was    fs.FileInfo // of bin, when its content was last known
}

// isTokenFile reports whether a path is read as a token file rather than text.
func isTokenFile(path string) bool { return strings.HasSuffix(path, ".bin") }

// Index returns the name of Megatron-LM's index for the token file PREFIX.bin. A name with another
// suffix is an error.
func Index(path string) (string, error) {
	if !isTokenFile(path) {
		return "", fmt.Errorf("%s: want a name that ends in .bin", path)
	}
	return megatronIndex(path), nil
}

// OpenTokens opens the token file PREFIX.bin. If PREFIX.idx exists it is one of Megatron-LM, else one of
// llm.c, or ids alone of the element type raw ("u16", "u32"; "": none). Every size and offset is checked
// before use; ids are not checked. Errors name file and byte.
func OpenTokens(path, raw string) (*Tokens, error) {
	if !isTokenFile(path) {
		return nil, fmt.Errorf("%s: want a token file, whose name ends in .bin", path)
	}
	t := &Tokens{file: path}
	if err := t.open(raw); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Tokens) open(raw string) error {
	bin, file, err := t.mapFile(t.file)
	if err != nil {
		return err
	}
	t.bin = file
	if t.was, err = file.Stat(); err != nil {
		return err
	}
	name := megatronIndex(t.file)
	idx, file, err := t.mapFile(name)
	if err == nil {
		err = file.Close()
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && isLLMC(bin):
		t.Format, t.Documents, t.offset = LLMC, Unrecorded, llmcHeader
		t.ids, err = parseLLMC(t.file, bin)
		return err
	case errors.Is(err, fs.ErrNotExist) && raw != "":
		t.Format, t.Documents = rawIDs, Unrecorded
		t.ids, err = parseRaw(t.file, bin, raw)
		return err
	case errors.Is(err, fs.ErrNotExist):
		return broken(t.file, 0, "neither llm.c's magic number (%d or %d) nor, beside the file, an index of Megatron-LM (%s); data.dtype names the type of ids without a header, as nanoGPT's",
			llmcGPT2Magic, llmcLlama3Magic, name)
	case err != nil:
		return err
	case isLLMC(bin):
		return broken(t.file, 0, "llm.c's magic number, yet an index of Megatron-LM lies beside the file (%s): remove one of the two", name)
	}
	t.Format, t.index = Megatron, idx
	t.ids, t.Documents, err = parseMegatron(name, idx, bin)
	return err
}

// parseRaw returns the ids of a file that has nothing else.
func parseRaw(file string, bin []byte, name string) (ids, error) {
	x := ids{bin, u16}
	if name == "u32" {
		x.element = u32
	}
	if n := len(bin) % x.width(); n != 0 {
		return ids{}, broken(file, int64(len(bin)-n), "%d bytes behind the last whole id of %d", n, x.width())
	}
	return x, nil
}

// mapFile opens a regular file and maps it into memory until Close.
func (t *Tokens) mapFile(path string) ([]byte, *os.File, error) {
	f, size, err := files.Regular(path, files.Unbound)
	if err != nil {
		return nil, nil, err
	}
	if size == 0 {
		return nil, f, nil // an empty file cannot be mapped
	}
	if size != int64(int(size)) {
		f.Close()
		return nil, nil, fmt.Errorf("%s: %d bytes are more than this machine can address", path, size)
	}
	raw, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s: map into memory: %w", path, err)
	}
	t.maps = append(t.maps, raw)
	return raw, f, nil
}

// Len returns the number of tokens.
func (t *Tokens) Len() int { return t.ids.count() }

// Type returns the name of the element type, for example u16.
func (t *Tokens) Type() string { return elements[t.ids.element].name }

// Span returns the smallest and the largest id; 0 and -1 if there are none. It reads all ids.
func (t *Tokens) Span() (low, high int64) { return t.ids.span() }

// End returns the id that ends documents in a file that does not record them: GPT-2's end of text, or
// Llama 3's among ids of 32 bits.
func (t *Tokens) End() int64 {
	if t.ids.element == u32 {
		return llmcLlama3End
	}
	return GPT2End
}

// Count returns how often an id occurs. It reads all ids.
func (t *Tokens) Count(id int64) (n int64) {
	for i := range t.Len() {
		if t.ids.id(i) == id {
			n++
		}
	}
	return n
}

// Check returns an error that names the first id outside [0, vocab) and its place. It reads all
// ids, unless their type cannot exceed vocab.
func (t *Tokens) Check(vocab int) error {
	i := t.ids.outside(vocab)
	if i < 0 {
		return nil
	}
	cure := ""
	if low, high := t.Span(); low >= 0 {
		cure = fmt.Sprintf(": the largest id here is %d, so set model.vocab to the vocabulary of the tokens' tokenizer, at least %d", high, high+1)
	}
	return broken(t.file, t.offset+int64(i)*int64(t.ids.width()), "id %d of token %d, want 0 to %d (model.vocab = %d)%s",
		t.ids.id(i), i, vocab-1, vocab, cure)
}

// mostAgain bounds the bytes of a file that is hashed again if only its time of change is another.
// The other ranks wait meanwhile: a gigabyte takes about a second.
const mostAgain = 4 << 30

// Changed returns an error if the file with the ids was shortened, or was written to, since it was
// mapped. Memory behind the new end of the file cannot be read. hash is that of the ids.
func (t *Tokens) Changed(hash string) error {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	now, err := t.bin.Stat()
	switch {
	case err != nil:
		return err
	case now.Size() != t.was.Size():
		return fmt.Errorf("%s: %d bytes, and %d when it was opened: the file was changed while it is in use", t.file, now.Size(), t.was.Size())
	case now.ModTime().Equal(t.was.ModTime()):
		return nil
	case now.Size() <= mostAgain && t.ids.hash() == hash:
		t.was = now
		return nil
	}
	return fmt.Errorf("%s: its time of change is %s, and was %s: the file must not change while a run reads it",
		t.file, now.ModTime().Format(time.DateTime), t.was.ModTime().Format(time.DateTime))
}

// Close unmaps the memory. No token may be read after it.
func (t *Tokens) Close() error {
	var failed error
	for _, raw := range t.maps {
		failed = errors.Join(failed, syscall.Munmap(raw))
	}
	if t.bin != nil {
		failed = errors.Join(failed, t.bin.Close())
	}
	t.maps, t.ids.raw, t.index = nil, nil, nil
	return failed
}
