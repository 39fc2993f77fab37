package data

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"dynmo/src/files"
)

// readText returns the text of the documents in files with separators, at most s.limit bytes (0 means all).
// It sets s.documents.
func (s *source) readText(list []File) ([]byte, error) {
	most := int64(files.Text)
	if s.limit > 0 {
		most = min(most, s.limit)
	}
	room := int64(max(0, len(list)-1))
	for _, f := range list {
		room += f.Size
	}
	tooMuch := func(found string) error {
		return fmt.Errorf("%s bytes of text, wanted at most %d (data.limit_bytes), or a token file of them (dynmo data prepare)", found, most)
	}
	if room > most && s.limit == 0 {
		return nil, tooMuch(fmt.Sprint(room))
	}
	t := texts{most: int(most), all: make([]byte, 0, min(room, most))}
	for _, f := range list {
		if err := t.read(f, s.keys); err != nil {
			return nil, err
		}
	}
	if t.more && s.limit == 0 {
		return nil, tooMuch("unpacked, more")
	}
	s.documents = t.ends
	return t.all, nil
}

// texts collects documents.
type texts struct {
	all  []byte
	ends []int // of documents, with the separator
	most int   // bytes
	more bool  // there is more text than most
}

// read adds the documents of a file.
func (t *texts) read(f File, keys []string) error {
	if t.more {
		return nil
	}
	d, err := f.Documents(keys)
	if err != nil {
		return err
	}
	defer d.Close()
	for !t.more {
		doc, err := d.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := t.add(doc, f); err != nil {
			return err
		}
	}
	return nil
}

// add adds a document, if it is not empty.
func (t *texts) add(doc Document, f File) error {
	begin := len(t.all)
	if begin > 0 && begin < t.most {
		t.all = append(t.all, Separator)
		begin++
	}
	for {
		t.all = slices.Grow(t.all, 1)
		free := t.all[len(t.all):min(cap(t.all), t.most)]
		if len(free) == 0 {
			n, err := doc.Text.Read(make([]byte, 1))
			if t.more = n > 0; t.more || errors.Is(err, io.EOF) {
				break
			}
		}
		n, err := doc.Text.Read(free)
		t.all = t.all[:len(t.all)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	text := t.all[begin:]
	if !t.more && doc.Size > 0 && int64(len(text)) != doc.Size {
		return fmt.Errorf("%s: %d of %d bytes read: the file was changed", f.Path, len(text), doc.Size)
	}
	if len(text) == 0 {
		if !t.more { // an empty document
			t.all = t.all[:max(0, begin-1)]
		}
		return nil
	}
	at := Invalid(text)
	if t.more {
		at = invalidBeginning(text)
	}
	if at < len(text) {
		return doc.fail(f, int64(at), NoText(text[at]))
	}
	if n := len(t.ends); n > 0 {
		t.ends[n-1] = begin
	}
	t.ends = append(t.ends, len(t.all))
	return nil
}

// fail returns an error at a byte of the document.
func (d Document) fail(f File, at int64, err error) error {
	if d.Record > 0 {
		return fmt.Errorf("%s: record %d: byte %d of its text: %w", f.Path, d.Record, at, err)
	}
	return fmt.Errorf("%s: byte %d: %w", f.Path, at, err)
}
