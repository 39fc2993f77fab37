package trainerlogs

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"dynmo/src/cost"
)

// hookLine is a line of the hook in dynmo help trainers: a layer's times for one microbatch.
type hookLine struct {
	Layer    string   `json:"layer"`
	Forward  *float64 `json:"forward_ms"`
	Backward *float64 `json:"backward_ms"`
}

// hookStart begins a line of the hook. Launchers put text before it.
const hookStart = `{"layer": "`

// readHook reads the lines of the hook among the other lines of a log. Lines of several ranks may follow
// each other in any order.
func readHook(path string, r Run) (Costs, error) {
	samples := make(map[string]*[weight][]float64) // by layer: seconds
	err := eachLine(path, func(_ int, text string) error {
		at := strings.Index(text, hookStart)
		if at < 0 {
			return nil
		}
		var x hookLine
		if err := json.Unmarshal([]byte(text[at:]), &x); err != nil {
			return fmt.Errorf("%.100q: want a whole line of the hook, with times in numbers", text[at:])
		}
		if x.Forward == nil || x.Backward == nil || !(min(*x.Forward, *x.Backward) >= 0) {
			return fmt.Errorf("%.100q: want forward_ms and backward_ms >= 0", text[at:])
		}
		if place(x.Layer) < 0 {
			return fmt.Errorf("layer %.40q, want embedding, block.N, mtp.N or head", x.Layer)
		}
		s := samples[x.Layer]
		if s == nil {
			if s = new([weight][]float64); len(samples) == mostLayers {
				return fmt.Errorf("more than %d layers", mostLayers)
			}
			samples[x.Layer] = s
		}
		s[forward] = append(s[forward], *x.Forward/1000)
		s[backward] = append(s[backward], *x.Backward/1000)
		return nil
	})
	if err != nil {
		return Costs{}, err
	}
	if len(samples) == 0 {
		return Costs{}, fmt.Errorf("%s: no line with %s…, want the output of the hook in dynmo help trainers", path, hookStart)
	}
	var layers []cost.Layer
	variance, number := make(map[string]float64), make(map[string]int) // by kind
	for name, s := range samples {
		f, df := median(s[forward])
		b, db := median(s[backward])
		w := b / 2
		if name == names[embedding] {
			w = b
		}
		layers = append(layers, cost.Layer{Name: name}.WithSeconds(cost.Stage{Forward: f, Input: b - w, Weight: w}))
		kind := names[place(name)>>32]
		if f+b > 0 {
			variance[kind] += (df*df + db*db) / ((f + b) * (f + b))
		}
		number[kind] += len(s[forward])
	}
	slices.SortFunc(layers, func(a, b cost.Layer) int { return place(a.Name) - place(b.Name) })
	c, err := direct(layers, r)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	for i := range c.Kinds {
		k := &c.Kinds[i]
		k.Deviation, k.Samples = math.Sqrt(variance[k.Name]/float64(k.Layers)), number[k.Name]
	}
	c.Table.Deviation = deviations(c.Kinds)
	c.Notes = append(c.Notes, "the hook has one time for the backward: half of it counts as for inputs, half as for weights")
	return c, nil
}

// place returns where a layer of the hook is in the model: its kind, then its number. It is -1 for names
// that the hook does not give.
func place(name string) int {
	for k, kind := range names {
		before, numbered := strings.CutSuffix(kind, "N")
		if !numbered && name == kind {
			return k << 32
		}
		number, has := strings.CutPrefix(name, before)
		if n, err := strconv.Atoi(number); numbered && has && err == nil && n >= 0 && n < mostLayers && number == strconv.Itoa(n) {
			return k<<32 + n
		}
	}
	return -1
}
