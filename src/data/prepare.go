package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"unicode/utf8"
)

// block is how many bytes of text are encoded as one piece of work: enough
// that handing it on costs nothing, few enough that cores end together.
const block = 1 << 18

// InputError is an error of the texts that were to be prepared.
type InputError struct{ error }

func (e InputError) Unwrap() error { return e.error }

// Preparation says which texts become which token file.
type Preparation struct {
	Inputs     []string // text files, and directories of them in lexical order
	Extensions []string // endings of the files that are read from directories; none reads all
	Output     string   // PREFIX.bin, which is not there yet
	Format     Format
	Workers    int // goroutines that encode, at least 1
}

// Prepared is what became of a Preparation.
type Prepared struct {
	Documents int   // files that are not empty
	Bytes     int64 // of text
	Tokens    int64 // ends of text included
}

// Run encodes the texts with GPT-2's byte-pair encoding, each followed by the
// end-of-text token, and writes them in order: the file is the same whatever
// the number of workers. Texts must be UTF-8; empty ones are left out.
// progress is told how many bytes of text, of how many, are encoded. Errors: an
// InputError (no text, not UTF-8, an output that is there already), ctx's
// cause, the disk; no output is left behind then. It panics without workers.
func (p Preparation) Run(ctx context.Context, progress func(done, total int64)) (Prepared, error) {
	if p.Workers < 1 {
		panic("data: no workers")
	}
	var files []file
	total := int64(0)
	for _, input := range p.Inputs {
		list, err := list(input, p.Extensions, 0)
		if err != nil {
			return Prepared{}, InputError{fmt.Errorf("%s: %w", input, err)}
		}
		for _, f := range list {
			if f.size > 0 {
				files = append(files, f)
				total += f.size
			}
		}
	}
	if len(files) == 0 {
		return Prepared{}, InputError{errors.New("the inputs hold no text")}
	}
	w, err := Create(p.Output, p.Format, GPT2Vocab)
	if err != nil {
		return Prepared{}, InputError{err}
	}
	done := Prepared{Documents: len(files)}
	err = p.encode(ctx, files, func(b encoded) error {
		done.Bytes += int64(b.bytes)
		progress(done.Bytes, total)
		return w.Append(b.tokens, b.last)
	})
	done.Tokens = w.count
	if err != nil {
		return Prepared{}, errors.Join(err, w.Abort())
	}
	return done, w.Close()
}

// work is a part of a file that can be encoded by itself.
type work struct {
	text   []byte
	last   bool // of its file
	path   string
	offset int64        // of text in the file
	out    chan encoded // takes one
}

// encoded is what becomes of a work.
type encoded struct {
	tokens []int32
	bytes  int
	last   bool
	err    error
}

// encode calls write with the parts of the files in order, encoded on
// p.Workers goroutines.
func (p Preparation) encode(ctx context.Context, files []file, write func(encoded) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	ahead := 4 * p.Workers // what waits in memory for its turn
	todo, order := make(chan work, ahead), make(chan chan encoded, ahead)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop(nil)
	for range p.Workers {
		group.Go(func() {
			b := newBPE()
			for w := range todo {
				w.out <- b.run(w)
			}
		})
	}
	group.Go(func() {
		defer close(order)
		defer close(todo)
		for _, f := range files {
			err := parts(f.path, func(w work) error {
				w.out = make(chan encoded, 1)
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case order <- w.out:
				}
				todo <- w // taken: workers wait for nobody
				return nil
			})
			if err != nil {
				stop(err)
				return
			}
		}
	})
	for out := range order {
		b := <-out
		if b.err == nil {
			b.err = write(b)
		}
		if b.err != nil {
			return b.err
		}
	}
	return context.Cause(ctx)
}

// run encodes a part, and ends the text if it is the last of its file.
func (b *bpe) run(w work) encoded {
	e := encoded{bytes: len(w.text), last: w.last}
	if !utf8.Valid(w.text) {
		at := 0
		for {
			r, n := utf8.DecodeRune(w.text[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		e.err = InputError{broken(w.path, w.offset+int64(at), "0x%02x: the text is not UTF-8", w.text[at])}
		return e
	}
	// GPT-2 makes a token of 2 to 5 bytes of most texts.
	e.tokens, e.err = b.encode(make([]int32, 0, len(w.text)/2), string(w.text))
	if w.last {
		e.tokens = append(e.tokens, endOfText)
	}
	return e
}

// parts reads a file and yields it in parts of about a block, cut where it
// changes no id.
func parts(path string, yield func(work) error) error {
	f, err := os.Open(path)
	if err != nil {
		return InputError{err}
	}
	defer f.Close()
	var text []byte // read and not yet yielded
	offset := int64(0)
	for {
		from := len(text)
		text = append(text, make([]byte, block)...)
		n, err := io.ReadFull(f, text[from:])
		text = text[:from+n]
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return yield(work{text: text, last: true, path: path, offset: offset})
		case err != nil:
			return InputError{fmt.Errorf("%s: %w", path, err)}
		}
		if at := cut(text, from); at > 0 {
			if err := yield(work{text: text[:at], path: path, offset: offset}); err != nil {
				return err
			}
			offset += int64(at)
			text = append([]byte(nil), text[at:]...)
		}
	}
}
