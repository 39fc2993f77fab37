package record

import (
	"encoding/csv"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// CSV writes rows, which are structs, as comma-separated values under a header: the
// names that their fields have in JSON. Numbers have all their digits.
func CSV[T any](out io.Writer, rows []T) error {
	w := csv.NewWriter(out)
	var header []string
	for f := range reflect.TypeFor[T]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		header = append(header, name)
	}
	_ = w.Write(header) // Error has it
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
