package record

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"dynmo/src/files"
)

// Table writes a header and rows in columns two spaces apart. The first column is aligned to the
// left, the others to the right, like numbers. Every row has a cell for each column. Names in cells
// may come from outside: control characters are made harmless.
func Table(out io.Writer, header []string, rows [][]string) error {
	all := append([][]string{header}, rows...)
	width := make([]int, len(header))
	for r, row := range all {
		all[r] = make([]string, len(row))
		for column, cell := range row {
			cell = files.Visible(cell)
			all[r][column] = cell
			width[column] = max(width[column], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range all {
		for column, cell := range row {
			pad := strings.Repeat(" ", width[column]-utf8.RuneCountInString(cell))
			switch {
			case column > 0:
				b.WriteString("  " + pad + cell)
			case len(row) > 1:
				b.WriteString(cell + pad)
			default:
				b.WriteString(cell)
			}
		}
		b.WriteString("\n")
	}
	_, err := fmt.Fprint(out, b.String())
	return err
}

// CSV writes rows as comma-separated values under a header. Rows are structs; the header has the
// JSON names of their fields. Numbers are written with all digits.
func CSV[T any](out io.Writer, rows []T) error {
	w := csv.NewWriter(out)
	var header []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		header = append(header, name)
	}
	_ = w.Write(header) // w.Error returns the error later
	for _, row := range rows {
		var cells []string
		for _, v := range reflect.ValueOf(row).Fields() {
			cells = append(cells, fmt.Sprint(v.Interface()))
		}
		_ = w.Write(cells)
	}
	w.Flush()
	return w.Error()
}
