package profile

import (
	"bytes"
	"fmt"

	"dynmo/src/input"
)

// OpenSeries is ReadSeries of a file. The notes say that a torn last line is left out,
// and that a key has another name now.
func OpenSeries(path string, layers int) (series Series, notes []string, err error) {
	text, err := input.Read(path, input.Records)
	if err != nil {
		return nil, nil, err
	}
	text, torn := input.Whole(path, text)
	series, older, err := readSeries(path, bytes.NewReader(text), layers)
	if err != nil && torn != "" {
		err = fmt.Errorf("%w (%s)", err, torn)
	}
	if torn != "" {
		notes = append(notes, torn)
	}
	if older {
		notes = append(notes, path+": gap is called dispatch_seconds now")
	}
	return series, notes, err
}

// Keys returns values with the keys of a run, those of older versions too.
func (Run) Keys() []any {
	type plain Run // without this method
	return append(Run{}.Layout.Keys(), plain{})
}
