package data

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/parquet-go/parquet-go"
)

const (
	// batched is the number of bytes of text that go from a row group to the reader at a time.
	batched = 1 << 18
	// groupsAhead is the most row groups that are read at a time.
	groupsAhead = 4
)

// rows are texts of consecutive rows of a row group, and the error that ended it.
type rows struct {
	texts []string
	err   error
}

// readParquet reads columns of a Parquet file: a document for each row. Several row groups are read at a
// time, and given out in order. Memory is bounded: a few pages and batches for each of these.
func (d *Documents) readParquet(in *os.File, size int64, keys []string) (err error) {
	defer damaged(&err)
	f, err := parquet.OpenFile(in, size, &parquet.FileConfig{SkipPageIndex: true, SkipBloomFilters: true, ReadBufferSize: 1 << 16})
	if err != nil {
		return fmt.Errorf("Parquet: %w", err)
	}
	var columns []int
	for _, key := range keys {
		column, ok := f.Schema().Lookup(key)
		if !ok {
			var names []string
			for _, path := range f.Schema().Columns() {
				names = append(names, strings.Join(path, "."))
			}
			slices.Sort(names)
			return missingKey(key, names)
		}
		if kind := column.Node.Type().Kind(); kind != parquet.ByteArray || column.MaxRepetitionLevel > 0 {
			return fmt.Errorf("column %q is %s, want one string for each row", key, column.Node.Type())
		}
		columns = append(columns, column.ColumnIndex)
	}
	groups := f.RowGroups()
	stop := make(chan struct{})
	open := make(chan chan rows, min(groupsAhead, max(1, runtime.GOMAXPROCS(0)))-1)
	go func() {
		defer close(open)
		for _, g := range groups {
			out := make(chan rows, 2)
			select {
			case open <- out:
			case <-stop:
				return
			}
			go readGroup(g, columns, out, stop)
		}
	}()
	var now chan rows
	var texts []string
	record, total := int64(0), max(1, f.NumRows())
	d.at = func() int64 { return int64(float64(size) * min(1, float64(record)/float64(total))) }
	d.next = func() (Document, error) {
		for len(texts) == 0 {
			if now == nil {
				ok := false
				if now, ok = <-open; !ok {
					return Document{}, io.EOF
				}
			}
			got, ok := <-now
			if !ok {
				now = nil
				continue
			}
			if got.err != nil {
				return Document{}, fmt.Errorf("behind row %d: %w", record, got.err)
			}
			texts = got.texts
		}
		record++
		text := texts[0]
		texts = texts[1:]
		return Document{Text: strings.NewReader(text), Record: record}, nil
	}
	d.close = func() error {
		close(stop)
		for out := range open { // readers of row groups end before the file is closed
			for range out {
			}
		}
		for now != nil {
			if _, ok := <-now; !ok {
				now = nil
			}
		}
		return in.Close()
	}
	return nil
}

// readGroup sends the texts of a row group.
func readGroup(g parquet.RowGroup, columns []int, out chan<- rows, stop <-chan struct{}) {
	defer close(out)
	send := func(r rows) bool {
		select {
		case out <- r:
			return true
		case <-stop:
			return false
		}
	}
	err := func() (err error) {
		defer damaged(&err)
		var readers []*column
		for _, c := range columns {
			r := &column{pages: g.ColumnChunks()[c].Pages()}
			defer r.close()
			readers = append(readers, r)
		}
		var batch rows
		bytes := 0
		for range g.NumRows() {
			var parts []string
			for _, r := range readers {
				text, ok, err := r.next()
				if err != nil {
					return err
				}
				if ok {
					parts = append(parts, text)
				}
			}
			text := strings.Join(parts, "\n")
			batch.texts = append(batch.texts, text)
			if bytes += len(text) + 16; bytes >= batched {
				if !send(batch) {
					return nil
				}
				batch, bytes = rows{}, 0
			}
		}
		if len(batch.texts) > 0 {
			send(batch)
		}
		return nil
	}()
	if err != nil {
		send(rows{err: err})
	}
}

// damaged turns a panic into an error: the library panics on some damaged files.
func damaged(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("Parquet: the file is damaged: %v", r)
	}
}

// column reads the values of a column in a row group.
type column struct {
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
	buffer []parquet.Value
	left   []parquet.Value
}

// next returns the next value; false if it is null.
func (c *column) next() (string, bool, error) {
	for len(c.left) == 0 {
		if c.values == nil {
			page, err := c.pages.ReadPage()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF // the row group has more rows
				}
				return "", false, err
			}
			c.page, c.values = page, page.Values()
		}
		if c.buffer == nil {
			c.buffer = make([]parquet.Value, 64)
		}
		n, err := c.values.ReadValues(c.buffer)
		c.left = c.buffer[:n]
		if err != nil && !errors.Is(err, io.EOF) {
			return "", false, err
		}
		if n == 0 {
			parquet.Release(c.page)
			c.page, c.values = nil, nil
		}
	}
	v := c.left[0]
	c.left = c.left[1:]
	if v.IsNull() {
		return "", false, nil
	}
	return string(v.ByteArray()), true, nil
}

func (c *column) close() {
	if c.page != nil {
		parquet.Release(c.page)
	}
	_ = c.pages.Close()
}
