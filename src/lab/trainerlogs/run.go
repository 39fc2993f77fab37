package trainerlogs

import (
	"fmt"
	"strconv"
	"strings"

	"dynmo/src/cost"
	"dynmo/src/lab/layouts"
	"dynmo/src/partition"
)

// Run is the run that left a log.
type Run struct {
	Layout       string // in Megatron-LM's notation, or the blocks of each virtual stage
	Stages       int    // 0: follows from Layout and Chunks
	Chunks       int    // 0: follows from Layout and Stages
	Order        string // of the chunks over the stages: loop or v; "": loop
	Microbatches int    // of a step, on each replica; 0: not known
}

// kinds is the number of kinds of layers that a layout has letters for.
const kinds = 4

// letters are the kinds of layers in Megatron-LM's notation, and names those of layouts.Kind.
const letters = "EtmL"

var names = [kinds]string{"embedding", "block.N", "mtp.N", "head"}

const (
	embedding = iota
	block
)

// counts is numbers of layers by kind.
type counts [kinds]int

func (c counts) plus(other counts) counts {
	for k, n := range other {
		c[k] += n
	}
	return c
}

// shape is which layers the virtual stages of a run have.
type shape struct {
	partition.Map
	virtual      []counts // by virtual stage
	microbatches int
	layout       string // this and order are as the user gave them
	order        string
}

// total returns the layers of the model.
func (s shape) total() (all counts) {
	for _, c := range s.virtual {
		all = all.plus(c)
	}
	return all
}

// shape reads the layout of the run.
func (r Run) shape() (shape, error) {
	if r.Order != "" && r.Order != "loop" && r.Order != "v" {
		return shape{}, fmt.Errorf("--order %.20s: want loop or v", r.Order)
	}
	s, err := r.read()
	if err != nil {
		return s, fmt.Errorf("--layout %.100q: %w", r.Layout, err)
	}
	return s, nil
}

func (r Run) read() (shape, error) {
	s := shape{microbatches: r.Microbatches, layout: r.Layout, order: r.Order}
	var err error
	if strings.ContainsAny(r.Layout, letters) {
		s.virtual, err = megatronCounts(r.Layout)
	} else {
		s.virtual, err = blockCounts(r.Layout)
	}
	if err != nil {
		return s, err
	}
	n := len(s.virtual)
	switch {
	case r.Stages == 0:
		r.Chunks = max(1, r.Chunks)
		r.Stages = n / r.Chunks
	case r.Chunks == 0:
		r.Chunks = n / r.Stages
	}
	if r.Stages*r.Chunks != n || n == 0 {
		return s, fmt.Errorf("%d virtual stages, want a multiple of --stages (%d) or --chunks (%d)", n, r.Stages, r.Chunks)
	}
	s.Map = partition.Map{Stages: r.Stages, Chunks: r.Chunks, Vee: r.Order == "v"}
	all, layers := s.total(), 0
	for _, n := range all {
		layers += n
	}
	if layers < r.Stages {
		return s, fmt.Errorf("%d layers, want at least one for each of the %d stages", layers, r.Stages)
	}
	if all[block] == 0 {
		return s, fmt.Errorf("no block, want at least one")
	}
	return s, nil
}

// megatronCounts reads a layout in Megatron-LM's notation.
func megatronCounts(text string) ([]counts, error) {
	virtual, err := layouts.ParseMegatron(text)
	if err != nil {
		return nil, err
	}
	flat := strings.Join(virtual, "")
	// With one pipeline stage only the order of letters is checked: no chunk is the last of a stage yet.
	if err := layouts.CheckMegatron([]string{flat}, 1, strings.Count(flat, "t"), strings.Count(flat, "m")); err != nil {
		return nil, err
	}
	list := make([]counts, len(virtual))
	for v, stage := range virtual {
		for _, letter := range stage {
			list[v][strings.IndexRune(letters, letter)]++
		}
	}
	return list, nil
}

// blockCounts reads the numbers of blocks of the virtual stages. The first one has the embedding too, and
// the last one the head.
func blockCounts(text string) ([]counts, error) {
	var list []counts
	for field := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 0 || n > mostLayers {
			return nil, fmt.Errorf("%.20q, want a layout such as Et*8|t*8L, or the blocks of each virtual stage such as 8,8", field)
		}
		list = append(list, counts{block: n})
	}
	list[0][embedding]++
	list[len(list)-1][kinds-1]++
	return list, nil
}

// mostLayers bounds the layers of a table: a hundred times those of the deepest models.
const mostLayers = 1 << 16

// layers returns the layers of a model. seconds is by kind.
func layersOf(all counts, seconds [kinds]cost.Stage) []cost.Layer {
	var list []cost.Layer
	for k, name := range names {
		for i := range all[k] {
			layer := cost.Layer{Name: strings.Replace(name, "N", strconv.Itoa(i), 1)}
			list = append(list, layer.WithSeconds(seconds[k]))
		}
	}
	return list
}
