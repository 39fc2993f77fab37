package input

import (
	"encoding/json"
	"testing"
)

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
		if err := Mistyped(json.Unmarshal([]byte(c.text), &v)); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}
