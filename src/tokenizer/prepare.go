package tokenizer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"dynmo/src/data"
)

// block is the number of bytes of text in one piece of work. It is large enough that passing work
// on costs nothing, and small enough that all cores finish at about the same time.
const block = 1 << 18

// longestWord bounds the bytes of a text that are in memory because the text has no place to cut,
// as in a file of zeros.
const longestWord = 64 << 20

// InputError is an error in the texts to prepare.
type InputError struct{ error }

func (e InputError) Unwrap() error { return e.error }

// Preparation turns texts into a token file.
type Preparation struct {
	Tokenizer  Tokenizer
	Inputs     []string // files of text (see data.File.Documents), directories and patterns of them
	Keys       []string // members or columns of records that have the text
	Extensions []string // suffixes of the files that are read from directories; empty: all files
	Output     string   // PREFIX.bin
	Format     data.Format
	Workers    int // goroutines that encode, at least 1
}

// Prepared is the counts of a finished Preparation.
type Prepared struct {
	Documents int   // without empty ones
	Bytes     int64 // of text
	Tokens    int64 // including end-of-text tokens
}

// Run encodes the texts, each followed by the end-of-text token, and writes them in order. The file
// is the same for any number of workers. A text file is a document, or has some as records. Texts must be
// UTF-8 without zero bytes. Empty texts are left out. progress is called with the encoded bytes of the inputs, and with
// their total.
//
// Memory is bounded: at most five parts wait for each worker. A part is a quarter of a megabyte of
// text (more if the text cannot be cut).
//
// Errors: an InputError (no text, not UTF-8), or the cause of ctx; an error of the
// tokenizer, with the file and the byte; an error of the disk. After an error the output file is
// unchanged. Run panics if there are no workers.
func (p Preparation) Run(ctx context.Context, progress func(done, total int64)) (Prepared, error) {
	if p.Workers < 1 {
		panic("tokenizer: no workers")
	}
	var inputs []data.File
	total := int64(0)
	for _, input := range p.Inputs {
		list, err := data.List(input, p.Extensions, 0)
		if err != nil {
			return Prepared{}, InputError{fmt.Errorf("%s: %w", input, err)}
		}
		for _, f := range list {
			if f.Size > 0 {
				inputs = append(inputs, f)
				total += f.Size
			}
		}
	}
	if len(inputs) == 0 {
		return Prepared{}, InputError{errors.New("the inputs hold no text")}
	}
	w, err := data.Create(p.Output, p.Format, p.Tokenizer.Vocab)
	if err != nil {
		return Prepared{}, InputError{err}
	}
	var done Prepared
	read := int64(0)
	err = p.encode(ctx, inputs, func(b encoded) error {
		done.Bytes += int64(b.bytes)
		done.Tokens += int64(len(b.tokens))
		if read += b.read; b.read > 0 {
			progress(read, total)
		}
		if b.last {
			done.Documents++
		}
		return w.Append(b.tokens, b.last)
	})
	if err == nil && done.Documents == 0 {
		err = InputError{errors.New("the inputs hold no text")}
	}
	if err != nil {
		w.Abort()
		return Prepared{}, err
	}
	return done, w.Close()
}

// work is a part of a document that can be encoded separately.
type work struct {
	text        string
	first, last bool  // of the document
	read        int64 // bytes of the file that the part stands for
	path        string
	record      int64        // number of the record in the file, from 1; 0: the document is the file
	offset      int64        // offset of text in the document
	out         chan encoded // takes one result
}

// fail returns an error that names the file and a byte of the text.
func (w work) fail(position int, err error) error {
	if w.record > 0 {
		return fmt.Errorf("%s: record %d: byte %d of its text: %w", w.path, w.record, w.offset+int64(position), err)
	}
	return fmt.Errorf("%s: byte %d: %w", w.path, w.offset+int64(position), err)
}

// encoded is the result of encoding a work.
type encoded struct {
	tokens []int32
	bytes  int   // bytes of text
	last   bool  // of the document
	read   int64 // as in work
	err    error
}

// encode calls write with the encoded parts of the files, in order. p.Workers goroutines encode.
func (p Preparation) encode(ctx context.Context, inputs []data.File, write func(encoded) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	ahead := 4 * p.Workers // parts that wait in memory
	todo, order := make(chan work, ahead), make(chan chan encoded, ahead)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop(nil)
	for range p.Workers {
		group.Go(func() {
			e := p.Tokenizer.encoder()
			for w := range todo {
				w.out <- p.Tokenizer.run(e, w)
			}
		})
	}
	group.Go(func() {
		defer close(order)
		defer close(todo)
		for _, f := range inputs {
			err := parts(f, p.Keys, p.Tokenizer.cut, func(w work) error {
				w.out = make(chan encoded, 1)
				select {
				case <-ctx.Done():
					return context.Cause(ctx)
				case order <- w.out:
				}
				todo <- w // a worker takes it, and workers wait for no other goroutine
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

// run encodes a part. After the last part of a document it appends the end-of-text token.
func (t Tokenizer) run(e *encoder, w work) encoded {
	if w.text == "" && (w.first || !w.last) { // empty document
		return encoded{read: w.read}
	}
	done := encoded{bytes: len(w.text), last: w.last, read: w.read}
	if position := data.Invalid([]byte(w.text)); position < len(w.text) {
		done.err = InputError{w.fail(position, data.NoText(w.text[position]))}
		return done
	}
	done.tokens = make([]int32, 0, len(w.text)/2) // GPT-2 needs a token for 2 to 5 bytes of most texts
	if w.first {
		done.tokens = append(done.tokens, t.begin...)
	}
	for _, p := range t.raw.apart(w.text, 0, true) {
		if done.err == nil {
			done.tokens, done.err = t.append(done.tokens, e, w, p)
		}
	}
	if w.last {
		done.tokens = append(done.tokens, t.endOfText)
	}
	return done
}

// append appends the tokens of a part of a work to tokens.
func (t Tokenizer) append(tokens []int32, e *encoder, w work, p part) ([]int32, error) {
	if p.token != nil {
		return append(tokens, p.token.ID), nil
	}
	text := p.text
	if t.composes {
		text = nfc(text)
	}
	for _, q := range t.normal.apart(text, 0, true) {
		if q.token != nil {
			tokens = append(tokens, q.token.ID)
			continue
		}
		prefix := ""
		if w.first && p.at+q.at == 0 {
			prefix = t.leads.before(q.text, 0)
		}
		var err error
		tokens, err = e.encode(tokens, prefix+q.text)
		if failed, ok := errors.AsType[pieceError](err); ok {
			position := q.at + max(0, failed.position-len(prefix))
			if t.composes {
				position = beforeNFC(p.text, position)
			}
			return tokens, w.fail(p.at+position, failed.error)
		}
	}
	return tokens, nil
}

// parts reads the documents of a file and yields them in parts of about a block. cut returns places where
// a division changes no id.
func parts(source data.File, keys []string, cut func([]byte, int) int, yield func(work) error) error {
	d, err := source.Documents(keys)
	if err != nil {
		return InputError{err}
	}
	defer d.Close()
	s := splitter{cut: cut}
	var before int64 // bytes of the file that earlier parts stand for
	for {
		doc, err := d.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return InputError{err}
		}
		err = s.split(doc, source.Path, func(w work) error {
			now := d.At()
			w.read, before = now-before, now
			return yield(w)
		})
		if err != nil {
			return err
		}
	}
}

// splitter divides documents into parts.
type splitter struct {
	cut  func([]byte, int) int
	text []byte // bytes that were read but not yielded
}

// split yields the parts of a document.
func (s *splitter) split(doc data.Document, path string, yield func(work) error) error {
	offset := int64(0)
	part := func(length int, last bool) error {
		w := work{text: string(s.text[:length]), first: offset == 0, last: last, path: path, record: doc.Record, offset: offset}
		offset += int64(length)
		s.text = append(s.text[:0], s.text[length:]...)
		return yield(w)
	}
	room := block
	if doc.Size > 0 {
		room = min(block, int(doc.Size)+1) // most files are small
	}
	for ; ; room = block {
		from := len(s.text)
		s.text = slices.Grow(s.text, room)[:from+room]
		n, err := io.ReadFull(doc.Text, s.text[from:])
		s.text = s.text[:from+n]
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return part(len(s.text), true)
		case err != nil:
			return InputError{fmt.Errorf("%s: %w", path, err)}
		}
		if position := s.cut(s.text, from); position > 0 {
			if err := part(position, false); err != nil {
				return err
			}
		}
		if len(s.text) > longestWord {
			return InputError{fmt.Errorf("%s: byte %d: %d bytes without a place between two words, want text", path, offset, len(s.text))}
		}
	}
}
