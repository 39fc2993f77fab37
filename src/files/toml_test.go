package files

import (
	"reflect"
	"testing"

	"dynmo/src/expect"
)

// TestTOML: keys have exactly the names of fields, values have their types, and errors their lines.
func TestTOML(t *testing.T) {
	type row struct {
		Name  string    `toml:"name,omitzero"`
		Parts []float64 `toml:"parts"`
	}
	type file struct {
		Steps  int
		Rate   float64         `toml:"rate"`
		Any    any             `toml:"any"`
		Rows   []row           `toml:"row"`
		ByName map[string]*row `toml:"by_name"`
	}
	var got file
	expect.OK(t, TOML("f", []byte("steps = 3\nrate = 2\nany = {A = 1}\n[[row]]\nname = 'a'\nparts = [1, 2.5]\n[by_name.X]\nname = 'b'\n"), &got))
	want := file{Steps: 3, Rate: 2, Any: map[string]any{"A": int64(1)}, Rows: []row{{"a", []float64{1, 2.5}}}, ByName: map[string]*row{"X": {Name: "b"}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	for text, want := range map[string]string{
		"steps = 3\nSteps = 4": "f:2: Steps: unknown key; the nearest is steps",
		"RATE = 1":             "f:1: RATE: unknown key; the nearest is rate",
		"hidden = 1":           "f:1: hidden: unknown key; the nearest is rate",

		"[[row]]\nname = 'a'\n[[row]]\nNames = 'b'": "f:4: row[1].Names: unknown key; the nearest is row[1].name",
		"[by_name.X]\nName = 'b'":                   "f:2: by_name.X.Name: unknown key; the nearest is by_name.X.name",
		"steps = 1.5":                               "f:1: steps: 1.5, wanted a whole number",
		"rate = 'fast'":                             `f:1: rate: "fast", wanted a number`,
		"rate = 9007199254740993":                   "f:1: rate: 9007199254740993, wanted a number",
		"row = 3":                                   "f:1: row: 3, wanted a list",
		"[[row]]\nparts = [1, 'x']":                 `f:2: row[0].parts[1]: "x", wanted a number`,
		"[[row]]\nname = 1":                         "f:2: row[0].name: 1, wanted a text",
		"by_name = 1":                               "f:1: by_name: 1, wanted a table",
		"steps = = 1":                               "f:1: expected value but found '=' instead",

		"\n[by_name.X]\nname = 'b'\n[by_name.X]\na=1": "f:4: Key 'by_name.X' has already been defined.",
	} {
		if err := TOML("f", []byte(text), &got); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
