package files

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"dynmo/src/expect"
)

func TestLines(t *testing.T) {
	type row struct {
		Step int `json:"step"`
	}
	t.Chdir(t.TempDir())
	const good = "{\"step\":1}\n{\"step\":2}\n"
	for _, c := range []struct{ name, text, note, wrong string }{
		{"whole", good, "", ""},
		{"no newline at the end", strings.TrimSuffix(good, "\n"), "", ""},
		{"cut off", good + `{"st`, "f:3: the last line is torn and left out", ""},
		{"cut off before a newline", good + "{\"st\n", "f:3: the last line is torn and left out", ""},
		{"NULs", good + "\x00\x00\x00", "f:3: the last line is torn and left out", ""},
		{"cut off by NULs", good + "{\"st\x00\x00\n", "f:3: the last line is torn and left out", ""},
		{"damaged before the end", "{\"step\":1}\n{\"st\n{\"step\":2}\n", "", "f:2: invalid character '\\n' in string"},
		{"NULs before the end", "{\"step\":1}\n\x00\x00\n{\"step\":2}\n", "", `f:2: invalid character '\x00'`},
		{"another type at the end", good + "[3]\n", "", "f:3: array, want an object"},
	} {
		expect.OK(t, os.WriteFile("f", []byte(c.text), 0o666))
		list, note, err := Lines[row]("f")
		// Texts of encoding/json end in words of its version.
		if err != nil && (c.wrong == "" || !strings.HasPrefix(err.Error(), c.wrong)) || err == nil && (c.wrong != "" || !slices.Equal(list, []row{{1}, {2}})) || note != c.note {
			t.Errorf("%s: %v, note %q, %v", c.name, list, note, err)
		}
	}
}

func TestRecords(t *testing.T) {
	const torn = "f:3: the last line is torn and left out"
	t.Chdir(t.TempDir())
	for _, c := range []struct{ name, text, want, note string }{
		{"whole", "{}\n{}\n", "{}\n{}\n", ""},
		{"nothing else", "{\"a\":", "", "f:1: the last line is torn and left out"},
		{"cut off", "{}\n{}\n{\"a\":", "{}\n{}\n", torn},
		{"NULs", "{}\n{}\n\x00\x00", "{}\n{}\n", torn},
		{"an array", "[\n{},\n{}\n]\n", "[\n{},\n{}\n]\n", ""},
		{"an array without its end", "[\n{},\n{},\n", "[\n{},\n{},\n", ""},
		{"a torn array", "[\n{},\n{\"a\":", "[\n{},\n", torn},
		{"NULs behind an array", "[\n]\n\x00", "[\n]\n", torn},
		{"written by people", "{\n\"a\": 1\n}\n", "{\n\"a\": 1\n}\n", ""},
		{"empty", "", "", ""},
	} {
		expect.OK(t, os.WriteFile("f", []byte(c.text), 0o666))
		r, note, err := Records("f")
		expect.OK(t, err)
		got, err := io.ReadAll(r)
		if string(got) != c.want || note != c.note || err != nil {
			t.Errorf("%s: %q, note %q, %v", c.name, got, note, err)
		}
		expect.OK(t, r.Close())
	}
}

type inner struct {
	Bytes int `json:"bytes"`
	Free  any `json:"free"`
}

type outer struct {
	inner
	List   []*inner `json:"list"`
	Custom custom   `json:"custom"`
	Hidden int      `json:"-"`
}

type custom struct{}

func (custom) Keys() []any {
	return []any{struct {
		Old int `json:"old"`
	}{}, inner{}}
}

func TestCheckKeys(t *testing.T) {
	for text, want := range map[string]string{
		`{"bytes":1,"list":[{"bytes":2},null],"free":{"x":[{"y":1}]},"custom":{"old":1,"bytes":2}}`: "",
		`{ "list" : [ ] , "free" : { } , "bytes" : -1e3 }`:                                          "",
		`[]`:                       "",
		` 7`:                       "",
		`{"byte":1}`:               "byte: unknown key; the nearest is bytes",
		`{"Bytes":1}`:              "Bytes: unknown key; the nearest is bytes",
		`{"b\u0079tes":1}`:         "",
		`{"Hidden":1}`:             "Hidden: unknown key; the nearest is bytes",
		`{"custom":{"odl":1}}`:     "custom.odl: unknown key; the nearest is old",
		`{"by\ntes":1}`:            `by\ntes: unknown key; the nearest is bytes`,
		`{"bytes":1,"bytes":2}`:    "bytes: stands twice",
		`{"free":[{"a":1,"a":2}]}`: "free[0].a: stands twice",
		`{"list":[{"bytes":1,"free":"]}\"\\"},{"fre":1}]}`: "list[1].fre: unknown key; the nearest is free",
	} {
		if err := CheckKeys([]byte(text), outer{}); err == nil && want != "" || err != nil && err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzCheckKeys: no valid JSON text has a fault of syntax.
func FuzzCheckKeys(f *testing.F) {
	f.Add(`{"bytes":1,"list":[{"bytes":2},null],"free":{"x":[{"y":1}]}}`)
	f.Add(` [ "\\" , {"a" : -1e3} , true ] `)
	f.Add(`{"bytes":1`)
	f.Fuzz(func(t *testing.T, text string) {
		err := CheckKeys([]byte(text), outer{})
		syntax, is := errors.AsType[*json.SyntaxError](err)
		if is && json.Valid([]byte(text)) {
			t.Errorf("%q: %v", text, syntax)
		}
	})
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{ // kitten, sitting: Wagner & Fischer's usual example
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"hiden", "hidden", 1}, {"ab", "ba", 2},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"block3.mlp":         "block3.mlp",
		`"quoted" \ größe 層`: `"quoted" \ größe 層`,
		"\x1b[2Jrun":         `\x1b[2Jrun`,
		"a\rb\tc\nd\x00\x7f": `a\rb\tc\nd\x00\x7f`,
		"\u0085\u009b31m":    `\u0085\u009b31m`,
		"\x9b31m\xff":        `\x9b31m\xff`,
		"\xef\ufffd":         `\xef` + "\ufffd",
		"abc\u202egpj.exe":   `abc\u202egpj.exe`,
		"\u2066\u200b\ufeff": `\u2066\u200b\ufeff`,
	} {
		if got := Visible(text); got != want {
			t.Errorf("Visible(%q) = %q, want %q", text, got, want)
		}
	}
	if got := VisibleLines("a\x1b\n\tb\n"); got != "a\\x1b\n\\tb\n" {
		t.Errorf("VisibleLines: %q", got)
	}
}

func TestCheckDepth(t *testing.T) {
	deep := strings.Repeat("[", deepest+1)
	const refused = "f:1: tables or lists more than 16 deep in each other, want settings"
	for _, c := range []struct{ name, text, want string }{
		{"settings", "[data]\nextensions = [\".go\", \".c\"] # [[[[\nlr = 1.5e-3\n", ""},
		{"floats", "slow = [" + strings.Repeat("1.5, ", 40) + "2.5]", ""},
		{"in a string", `a = "` + deep + `\"` + deep + `"`, ""},
		{"in a literal", `a = '` + deep + `\'`, ""},
		{"in a long string", "a = \"\"\"\n" + deep + "\"" + deep + "\"\"\"\"\"\n", ""},
		{"behind a long string", "a = [\"\"\"x\"\"\"\"," + deep, refused},
		{"in a comment", "# " + deep, ""},
		{"lists", "a = " + deep, refused},
		{"tables", "a = " + strings.Repeat("{a = ", deepest+1), refused},
		{"keys", "[" + strings.Repeat("a. ", deepest) + "a]", refused},
		{"keys in quotes", strings.Repeat("\"a\".", deepest+1) + "a = 1", refused},
		{"further down", "a = 1\n" + strings.Repeat("]", 9) + strings.Repeat("[", deepest+1), strings.Replace(refused, "f:1", "f:2", 1)},
	} {
		if err := CheckDepth("f", []byte(c.text)); err == nil && c.want != "" || err != nil && err.Error() != c.want {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}

// FuzzCheckDepth: what is accepted is either no TOML or not deep. A key may have
// its dots in each of the brackets, and in a header.
func FuzzCheckDepth(f *testing.F) {
	f.Add("[a.b]\nb = \"\"\"\\\"\"\"\"\nc = 'x' # [\n")
	f.Add("a = [[{b.c = [1.5, 2]}]]")
	f.Fuzz(func(t *testing.T, text string) {
		var root map[string]any
		if CheckDepth("f", []byte(text)) != nil {
			return
		}
		if _, err := toml.Decode(text, &root); err == nil && depth(root) > (deepest+1)*(deepest+2) {
			t.Errorf("%d deep", depth(root))
		}
	})
}

func depth(value any) int {
	most := 0
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			most = max(most, 1+depth(v))
		}
	case []any:
		for _, v := range value {
			most = max(most, 1+depth(v))
		}
	case []map[string]any:
		for _, v := range value {
			most = max(most, 1+depth(v))
		}
	}
	return most
}

func TestMistyped(t *testing.T) {
	type Inner struct {
		Layers []struct {
			Seconds float64 `json:"seconds"`
			Count   int     `json:"count"`
		} `json:"layers"`
		Name string `json:"name"`
		Done bool   `json:"done"`
	}
	for _, c := range []struct{ text, want string }{
		{`{"layers": 3}`, "layers: number, want a list"},
		{`[1]`, "array, want an object"},
		{`{"layers": [{"seconds": "x"}]}`, "layers.seconds: string, want a number"},
		{`{"layers": [{"count": 1.5}]}`, "layers.count: number 1.5, want a whole number in range"},
		{`{"name": 1}`, "name: number, want a text"},
		{`{"done": "yes"}`, "done: string, want true or false"},
		{`{`, "unexpected end of JSON input"},
	} {
		var v struct{ Inner }
		err := Mistyped(json.Unmarshal([]byte(c.text), &v))
		if err == nil || strings.Replace(err.Error(), ".0.", ".", 1) != c.want { // Go 1.27 has the index too
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

// TestTOMLError: a number that is too large is named with its key and line.
func TestTOMLError(t *testing.T) {
	for text, want := range map[string]string{
		"[train]\nsteps = 99999999999999999999":              "f:2: train.steps: 99999999999999999999 is too large: want a whole number below 2^63",
		"[a]\nb = 1\n[optimizer]\n\nlr = [0.1, 1e999]":       "f:5: optimizer.lr: 1e999 is too large: want a number of at most 1.7e308",
		"steps = 9223372036854775808":                        "f:1: steps: 9223372036854775808 is too large: want a whole number below 2^63",
		"[[bound]]\nleast = 1\n[[bound]]\nmost = -1e999":     "f:4: bound.most: -1e999 is too large: want a number of at most 1.7e308",
		"[train]\nsteps = 1\nsteps = 2":                      "f:3: Key 'train.steps' has already been defined.",
		"[node]\nlatency = {mean = 99999999999999999999999}": "f:2: node.latency.mean: 99999999999999999999999 is too large: want a whole number below 2^63",
	} {
		var root map[string]any
		if _, err := toml.Decode(text, &root); err == nil || tomlError("f", err).Error() != want {
			t.Errorf("%q: %v, want %s", text, tomlError("f", err), want)
		}
	}
}
