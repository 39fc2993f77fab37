package profile

import (
	"bytes"

	"dynmo/src/input"
)

// OpenSeries is ReadSeries of a file. A last line that is torn is left out, of which
// the note says so.
func OpenSeries(path string, layers int) (series Series, note string, err error) {
	text, err := input.Read(path, input.Records)
	if err != nil {
		return nil, "", err
	}
	text, note = input.Whole(path, text)
	series, err = ReadSeries(path, bytes.NewReader(text), layers)
	return series, note, err
}

// Keys returns values with the keys of a run, those of older versions too.
func (Run) Keys() []any {
	type plain Run // without this method
	return append(Run{}.Layout.Keys(), plain{})
}
