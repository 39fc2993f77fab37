package weights

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// Write writes a safetensors file, with tensors in the order of the reference implementation:
// larger alignment first, then by name. It calls values for every tensor in that order to write the
// tensor's data. It ignores Begin and End of tensors. It panics if values writes another number of
// bytes than type and shape need.
func Write(w io.Writer, metadata map[string]string, tensors []Tensor, values func(w io.Writer, t Tensor) error) error {
	tensors = slices.Clone(tensors)
	slices.SortFunc(tensors, func(a, b Tensor) int {
		return cmp.Or(cmp.Compare(b.DType.place(), a.DType.place()), cmp.Compare(a.Name, b.Name))
	})
	end := int64(0)
	for i := range tensors {
		t := &tensors[i]
		size, err := t.size()
		if err != nil {
			return fmt.Errorf("tensor %.100q: %w", t.Name, err)
		}
		t.Begin, t.End = end, end+size
		end = t.End
	}
	header := marshal(metadata, tensors)
	if err := binary.Write(w, binary.LittleEndian, uint64(len(header))); err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	for _, t := range tensors {
		c := &counter{Writer: w}
		if err := values(c, t); err != nil {
			return err
		}
		if c.bytes != t.Bytes() {
			panic("weights: values do not fill their tensor")
		}
	}
	return nil
}

// counter counts the bytes that are written.
type counter struct {
	io.Writer
	bytes int64
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.Writer.Write(b)
	c.bytes += int64(n)
	return n, err
}

// marshal returns a header, padded with spaces to a multiple of 8 bytes.
func marshal(metadata map[string]string, tensors []Tensor) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	add := func(before string, value any) {
		b.WriteString(before)
		if err := e.Encode(value); err != nil {
			panic("weights: header does not marshal")
		}
		b.Truncate(b.Len() - 1) // Encode appends a newline
	}
	separator := "{"
	if len(metadata) > 0 {
		add(separator, metadataKey)
		add(":", metadata)
		separator = ","
	}
	for _, t := range tensors {
		add(separator, t.Name)
		add(`:{"dtype":`, t.DType)
		add(`,"shape":`, append([]int64{}, t.Shape...)) // never null
		add(`,"data_offsets":`, []int64{t.Begin, t.End})
		b.WriteString("}")
		separator = ","
	}
	if separator == "{" {
		b.WriteString(separator)
	}
	b.WriteString("}")
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	return b.Bytes()
}
